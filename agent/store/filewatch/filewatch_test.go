package filewatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// limit is how long a test waits for an event.
const limit = 20 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// open returns a placed Watch of paths.
func open(t testing.TB, c Config, paths ...string) *Watch {
	t.Helper()
	w := New(c)
	t.Cleanup(w.Close)
	if fresh, err := w.Set(paths...); err != nil || !fresh {
		t.Fatalf("fresh %v, error %v", fresh, err)
	}
	return w
}

// take waits for the next changes.
func take(t testing.TB, w *Watch) Changes {
	t.Helper()
	select {
	case <-w.Changed():
	case <-time.After(limit):
		t.Fatal("no change is reported")
	}
	c, err := w.Take()
	must(t, err)
	return c
}

// arrived waits until all events so far are recorded, by those of another Watch.
func arrived(t testing.TB) {
	t.Helper()
	folder := t.TempDir()
	w := open(t, Config{}, folder)
	defer w.Close()
	write(t, filepath.Join(folder, "last"), "")
	take(t, w)
}

// quiet checks that nothing is reported.
func quiet(t testing.TB, w *Watch) {
	t.Helper()
	arrived(t)
	if c, err := w.Take(); c.Any || err != nil {
		t.Errorf("reported %+v, error %v", c, err)
	}
}

// TestPath changes what is at a path, and what the path leads through. Each step is
// a change that must be reported, or must not.
func TestPath(t *testing.T) {
	type step struct {
		name   string
		do     func(t *testing.T, root string)
		silent bool
	}
	mkdir := func(name string) func(*testing.T, string) {
		return func(t *testing.T, root string) { must(t, os.Mkdir(filepath.Join(root, name), 0o755)) }
	}
	put := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, root string) { write(t, filepath.Join(root, name), text) }
	}
	rename := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			must(t, os.Rename(filepath.Join(root, from), filepath.Join(root, to)))
		}
	}
	link := func(target, name string) func(*testing.T, string) {
		return func(t *testing.T, root string) { must(t, os.Symlink(target, filepath.Join(root, name))) }
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, root string) { must(t, os.RemoveAll(filepath.Join(root, name))) }
	}
	for name, test := range map[string]struct {
		prepare []func(*testing.T, string)
		path    string
		steps   []step
	}{
		"file": {nil, "f", []step{
			{"another file", put("g", "1"), true},
			{"create", put("f", "1"), false},
			{"write", put("f", "2"), false},
			{"write another", put("g", "2"), true},
			{"replace", rename("g", "f"), false},
			{"write the new one", put("f", "3"), false},
			{"chmod", func(t *testing.T, root string) { must(t, os.Chmod(root+"/f", 0o600)) }, true},
			{"rename", rename("f", "g"), false},
			{"remove another", remove("g"), true},
		}},
		"parents created later": {nil, "a/b/f", []step{
			{"beside", mkdir("b"), true},
			{"first", mkdir("a"), false},
			{"second", mkdir("a/b"), false},
			{"beside the file", put("a/b/g", ""), true},
			{"file", put("a/b/f", ""), false},
			{"write", put("a/b/f", "2"), false},
			{"remove all", remove("a"), false},
			{"again", mkdir("a"), false},
			{"again below", mkdir("a/b"), false},
			{"and the file", put("a/b/f", "3"), false},
		}},
		"a parent replaced": {[]func(*testing.T, string){mkdir("a"), mkdir("a/b"), put("a/b/f", ""), mkdir("new"), mkdir("new/b"), put("new/b/f", "")}, "a/b/f", []step{
			{"write", put("a/b/f", "2"), false},
			{"move away", rename("a", "old"), false},
			{"move in", rename("new", "a"), false},
			{"write the new one", put("a/b/f", "2"), false},
			{"write the old one", put("old/b/f", "3"), true},
		}},
		"a file as parent": {[]func(*testing.T, string){put("a", "")}, "a/f", []step{
			{"write it", put("a", "2"), true},
			{"remove it", remove("a"), false},
			{"directory", mkdir("a"), false},
			{"file", put("a/f", ""), false},
		}},
		"projected volume": {[]func(*testing.T, string){mkdir("..1"), put("..1/f", "1"), link("..1", "..data"), link("..data/f", "f")}, "f", []step{
			{"write through", put("f", "2"), false},
			{"next version", mkdir("..2"), true},
			{"its file", put("..2/f", "3"), true},
			{"its link", link("..2", "..tmp"), true},
			{"swap", rename("..tmp", "..data"), false},
			{"write the old one", put("..1/f", "4"), true},
			{"write the new one", put("..2/f", "5"), false},
			{"remove the old one", remove("..1"), true},
		}},
		"dangling link": {[]func(*testing.T, string){link("x/y", "f")}, "f", []step{
			{"directory", mkdir("x"), false},
			{"file", put("x/y", ""), false},
			{"write", put("x/y", "2"), false},
			{"remove the link", remove("f"), false},
			{"write the old target", put("x/y", "2"), true},
		}},
		"link above": {[]func(*testing.T, string){mkdir("1"), mkdir("2"), link("1", "now")}, "now/../now/f", []step{
			{"create", put("1/f", ""), false},
			{"elsewhere", put("2/f", ""), true},
			{"next link", link("2", "next"), true},
			{"swap", rename("next", "now"), false},
			{"write the old one", put("1/f", "2"), true},
			{"write the new one", put("2/f", "2"), false},
		}},
		"links in a circle": {[]func(*testing.T, string){link("b", "a"), link("a", "b")}, "a", []step{
			{"elsewhere", put("c", ""), true},
			{"break it", remove("b"), false},
			{"file", put("b", ""), false},
		}},
		"directory": {[]func(*testing.T, string){mkdir("d")}, "d", []step{
			{"create", put("d/a", ""), false},
			{"write", put("d/a", "1"), false},
			{"subdirectory", mkdir("d/s"), false},
			{"in the subdirectory", put("d/s/a", ""), true},
			{"remove", remove("d/a"), false},
			{"move away", rename("d", "e"), false},
			{"in the old one", put("e/a", ""), true},
			{"a new one", mkdir("d"), false},
			{"in the new one", put("d/a", ""), false},
			{"remove it", remove("d"), false},
			{"file", put("d", ""), false},
			{"write the file", put("d", "1"), false},
		}},
		"directory behind a link": {[]func(*testing.T, string){mkdir("1"), link("1", "d")}, "d", []step{
			{"create", put("1/a", ""), false},
			{"write through", put("d/a", "1"), false},
			{"write", put("1/a", "2"), false},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, do := range test.prepare {
				do(t, root)
			}
			// Not with filepath.Join, which resolves "..".
			w := open(t, Config{Events: Writes}, root+"/"+test.path)
			for _, step := range test.steps {
				step.do(t, root)
				arrived(t)
				c, err := w.Take()
				if must(t, err); c.Any == step.silent {
					t.Errorf("%s: reported %+v", step.name, c)
				}
				quiet(t, w)
			}
		})
	}
}

// TestEvents checks which events count.
func TestEvents(t *testing.T) {
	for _, row := range []struct {
		name                     string
		events                   Events
		write, closed, attribute bool
	}{
		{"names only", 0, false, false, false},
		{"writes", Writes, true, false, false},
		{"closes", Closes, false, true, false},
		{"attributes", Writes | Attributes, true, false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "a")
			file, err := os.Create(path)
			must(t, err)
			// All share the kernel's watch of the directory.
			open(t, Config{Events: Writes | Closes | Attributes}, folder)
			watches := []*Watch{open(t, Config{Events: row.events}, folder), open(t, Config{Events: row.events}, path)}
			check := func(what string, want bool) {
				t.Helper()
				arrived(t)
				for i, w := range watches {
					if c, err := w.Take(); c.Any != want || err != nil {
						t.Errorf("watch %d, %s: reported %+v, error %v", i, what, c, err)
					}
				}
			}
			_, err = file.WriteString("a")
			must(t, err)
			check("write", row.write)
			must(t, file.Close())
			check("close", row.closed)
			must(t, os.Chmod(path, 0o600))
			check("chmod", row.attribute)
			must(t, os.Remove(path))
			check("remove", true)
		})
	}
}

// TestNames checks the names of changed entries, one of which is ignored.
func TestNames(t *testing.T) {
	folder := t.TempDir()
	other := t.TempDir()
	link := filepath.Join(other, "link")
	must(t, os.Symlink(folder, link))
	ignore := func(name string) bool { return strings.HasPrefix(name, ".") }
	w := open(t, Config{Events: Writes, Names: true, Ignore: ignore}, folder)
	behind := open(t, Config{Events: Writes, Names: true}, link)
	write(t, filepath.Join(folder, ".swp"), "")
	quiet(t, w)
	write(t, filepath.Join(folder, "a"), "")
	must(t, os.Rename(filepath.Join(folder, "a"), filepath.Join(folder, "b")))
	write(t, filepath.Join(folder, ".swp"), "2")
	arrived(t)
	for watch, want := range map[*Watch][]string{
		w:      {filepath.Join(folder, "a"), filepath.Join(folder, "b")},
		behind: {filepath.Join(link, ".swp"), filepath.Join(link, "a"), filepath.Join(link, "b")},
	} {
		c := take(t, watch)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(c.Names))); diff != "" || c.All || !c.Entries {
			t.Errorf("%+v: %s", c, diff)
		}
	}
	write(t, filepath.Join(folder, "b"), "2")
	if c := take(t, w); c.Entries || len(c.Names) != 1 {
		t.Errorf("a write is %+v", c)
	}
}

// TestManyEvents checks that many events are one notification, and that their names
// are bounded.
func TestManyEvents(t *testing.T) {
	folder := t.TempDir()
	w := open(t, Config{Events: Writes, Names: true}, folder)
	for i := range 3 * maxNames {
		write(t, filepath.Join(folder, strconv.Itoa(i)), "text")
	}
	arrived(t)
	if c := take(t, w); len(c.Names) != maxNames || !c.All || !c.Any {
		t.Errorf("%d names, all %v, any %v", len(c.Names), c.All, c.Any)
	}
	quiet(t, w)
	select {
	case <-w.Changed():
		t.Error("another notification")
	default:
	}
}

// TestOverflow fills the kernel's queue. All changes are reported then, and the
// watches are placed again, since the removal of one may be among the lost events.
func TestOverflow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	if most > 1<<17 {
		t.Skip("the queue is too long: ", most)
	}
	folder := t.TempDir()
	noisy, path := filepath.Join(folder, "noisy"), filepath.Join(folder, "d", "f")
	for _, d := range []string{noisy, filepath.Dir(path)} {
		must(t, os.Mkdir(d, 0o755))
	}
	open(t, Config{}, noisy)
	w := open(t, Config{Events: Writes}, path)
	mu.Lock() // suspends the reader
	for i := range most/2 + 1000 {
		name := filepath.Join(noisy, strconv.Itoa(i%2))
		write(t, name, "")
		must(t, os.Remove(name))
	}
	must(t, os.Rename(filepath.Dir(path), filepath.Join(folder, "old")))
	must(t, os.Mkdir(filepath.Dir(path), 0o755))
	mu.Unlock()
	if c := take(t, w); !c.All {
		t.Errorf("reported %+v", c)
	}
	arrived(t)
	_, _ = w.Take()
	write(t, path, "")
	if c := take(t, w); !c.All {
		t.Errorf("reported %+v", c)
	}
}

// TestUnmount checks that the end of a watch by an unmount is a change.
func TestUnmount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	folder := t.TempDir()
	if err := unix.Mount("none", folder, "tmpfs", 0, ""); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	w := open(t, Config{Events: Writes}, folder)
	must(t, unix.Unmount(folder, 0))
	if c := take(t, w); !c.All {
		t.Errorf("reported %+v", c)
	}
	write(t, filepath.Join(folder, "below"), "")
	if c := take(t, w); !c.Entries {
		t.Errorf("reported %+v", c)
	}
	// A mount over the directory causes no event.
	must(t, unix.Mount("none", folder, "tmpfs", 0, ""))
	if fresh, err := w.Set(folder); !fresh || err != nil {
		t.Errorf("fresh %v, error %v", fresh, err)
	}
	write(t, filepath.Join(folder, "above"), "")
	if c := take(t, w); !c.Entries {
		t.Errorf("reported %+v", c)
	}
}

// TestSet moves a Watch from one directory to another.
func TestSet(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	w := open(t, Config{}, one)
	if fresh, err := w.Set(one); fresh || err != nil {
		t.Errorf("the same path: fresh %v, error %v", fresh, err)
	}
	if fresh, err := w.Set(one, two); !fresh || err != nil {
		t.Errorf("another path: fresh %v, error %v", fresh, err)
	}
	if fresh, err := w.Set(two); fresh || err != nil {
		t.Errorf("fewer paths: fresh %v, error %v", fresh, err)
	}
	write(t, filepath.Join(one, "a"), "")
	quiet(t, w)
	write(t, filepath.Join(two, "a"), "")
	if arrived(t); !w.Pending() {
		t.Error("no change is pending")
	}
	take(t, w)
	if w.Pending() {
		t.Error("a change is pending after Take")
	}
	if fresh, err := w.Set(filepath.Join(two, "a")); !fresh || err != nil {
		t.Errorf("a file in the directory: fresh %v, error %v", fresh, err)
	}
}

// TestOneInstance checks that all Watches share an instance and its watches, and
// that nothing remains after the last one.
func TestOneInstance(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	var all []*Watch
	for i := range 20 {
		all = append(all, open(t, Config{}, folder, filepath.Join(folder, fmt.Sprint(i), "x")))
	}
	mu.Lock()
	i := shared
	watches := len(i.interests)
	mu.Unlock()
	if depth := strings.Count(folder, "/"); watches != depth+1 {
		t.Errorf("%d watches for %d directories", watches, depth+1)
	}
	for _, w := range all {
		if mu.Lock(); w.on != i {
			t.Error("another instance")
		}
		mu.Unlock()
	}
	for k, w := range all {
		w.Close()
		w.Close()
		if c, err := w.Take(); c.Any || err != nil {
			t.Errorf("a closed Watch reports %+v, error %v", c, err)
		}
		if k == len(all)-2 {
			write(t, filepath.Join(folder, "f"), "")
			take(t, all[k+1])
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if shared != nil || len(i.interests) != 0 {
		t.Errorf("left: %v, %v", shared, i.interests)
	}
	<-i.done
}

// TestReaderFails checks that a failed reader is an error of all Watches until they
// are closed.
func TestReaderFails(t *testing.T) {
	folder := t.TempDir()
	w := open(t, Config{}, folder)
	must(t, w.on.file.Close())
	select {
	case <-w.Changed():
	case <-time.After(limit):
		t.Fatal("the failure is not reported")
	}
	for range 2 {
		if _, err := w.Take(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("error %v", err)
		}
	}
	w.Close()
	w = open(t, Config{}, folder)
	write(t, filepath.Join(folder, "a"), "")
	take(t, w)
}

// TestNoDescriptors checks that Take tries again after inotify could not be used.
func TestNoDescriptors(t *testing.T) {
	folder := t.TempDir()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	w := New(Config{})
	defer w.Close()
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}))
	_, first := w.Set(folder)
	_, second := w.Take()
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	if !errors.Is(first, unix.EMFILE) || !errors.Is(second, unix.EMFILE) {
		t.Errorf("errors %v, %v", first, second)
	}
	if c, err := w.Take(); err != nil || !c.All {
		t.Errorf("reported %+v, error %v", c, err)
	}
	write(t, filepath.Join(folder, "a"), "")
	take(t, w)
}

// TestUnreadable checks directories that may be searched and not read.
func TestUnreadable(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "a")
	must(t, os.MkdirAll(filepath.Join(folder, "b"), 0o755))
	must(t, os.Chmod(filepath.Join(folder, "b"), 0o777))
	must(t, os.Chmod(folder, 0o311))
	t.Cleanup(func() { _ = os.Chmod(folder, 0o755) })
	if os.Getuid() == 0 { // root reads any directory, so this thread accesses files as another user
		must(t, os.Chmod(filepath.Dir(root), 0o755))
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		must(t, unix.Setfsuid(65534))
		defer func() { must(t, unix.Setfsuid(0)) }()
	}
	w := New(Config{Events: Writes})
	defer w.Close()
	if _, err := w.Set(filepath.Join(folder, "b", "f")); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(folder, "b", "f"), "")
	take(t, w)
	if _, err := w.Set(filepath.Join(folder, "f")); !errors.Is(err, unix.EACCES) {
		t.Errorf("error %v", err)
	}
}

// TestIdleTakeAllocatesNothing also covers events that are no change.
func TestIdleTakeAllocatesNothing(t *testing.T) {
	w := open(t, Config{Events: Writes}, t.TempDir())
	if n := testing.AllocsPerRun(100, func() { _, _ = w.Take() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestConcurrentUse moves, takes and closes Watches while files change.
func TestConcurrentUse(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	const users = 6
	for k := range users {
		go func() {
			defer func() { done <- struct{}{} }()
			own := filepath.Join(root, fmt.Sprint(k%3), "x", "y")
			w := New(Config{Events: Writes, Names: k%2 == 0})
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = w.Set(own, filepath.Join(root, fmt.Sprint(n%3)))
				_ = os.MkdirAll(filepath.Dir(own), 0o755)
				_ = os.WriteFile(own, nil, 0o644)
				if _, err := w.Take(); err != nil {
					t.Error(err)
				}
				if n%3 == 0 {
					_ = os.RemoveAll(filepath.Dir(own))
				}
				if n%7 == 0 {
					w.Close()
				}
			}
			w.Close()
		}()
	}
	for range users {
		<-done
	}
	mu.Lock()
	defer mu.Unlock()
	if shared != nil {
		t.Error("an instance is left")
	}
}

// TestNoChangeIsMissed replaces a file whose directories come and go, and checks
// that the last version is always seen.
func TestNoChangeIsMissed(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a", "b", "f")
	w := open(t, Config{Events: Writes}, path)
	for i := range 300 {
		text := fmt.Sprint(i)
		go func() {
			_ = os.RemoveAll(filepath.Join(root, "a"))
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
			_ = os.WriteFile(path, []byte(text), 0o644)
		}()
		for deadline := time.After(limit); ; {
			_, err := w.Take()
			must(t, err)
			if data, _ := os.ReadFile(path); string(data) == text {
				break
			}
			select {
			case <-w.Changed():
			case <-deadline:
				t.Fatalf("version %d is not seen", i)
			}
		}
	}
}

func TestFollow(t *testing.T) {
	root := t.TempDir()
	path := make(chan string, 1)
	path <- filepath.Join(root, "a")
	moved, changed, ended := make(chan struct{}), make(chan struct{}, 100), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		Follow(ctx, Following{
			Paths: func() []string {
				p := <-path
				path <- p
				return []string{p}
			},
			Moved: moved, Changed: func() { changed <- struct{}{} },
			Failed: func(err error) { t.Error(err) },
		})
	}()
	next := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(limit):
			t.Fatalf("%s: no change", what)
		}
	}
	next("start")
	write(t, filepath.Join(root, "a"), "")
	next("create")
	must(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
	<-path
	path <- filepath.Join(root, "d", "b")
	moved <- struct{}{}
	next("another path")
	write(t, filepath.Join(root, "d", "b"), "")
	next("create the other")
	cancel()
	<-ended
}

// TestFollowPolls checks that files are polled while they cannot be watched.
func TestFollowPolls(t *testing.T) {
	folder := t.TempDir()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}))
	var changed, failed int
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*PollInterval)
		defer cancel()
		Follow(ctx, Following{
			Paths:   func() []string { return []string{folder} },
			Changed: func() { changed++ },
			Failed:  func(error) { failed++ },
		})
	})
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	if changed < 10 || changed > 11 || failed != 1 {
		t.Errorf("changed %d times, failed %d times", changed, failed)
	}
}
