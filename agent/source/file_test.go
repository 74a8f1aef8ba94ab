package source_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source"
)

// manifestText is the manifest of one pod.
func manifestText(name, tag string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  containers:
  - name: main
    image: example.com/main:%s
`, name, tag)
}

// running is a running File and the sets that it handed over.
type running struct {
	t      *testing.T
	path   string
	events *event.Recorder
	log    logged

	mu       sync.Mutex
	sets     [][]string // each set as "name=tag"
	partial  bool       // the last set was
	partials int
	uids     map[string]string
	news     chan struct{}
	hold     sync.Mutex // while it is held, a set is not taken
}

// start runs a File that scans without an event after an hour: what the tests see is
// inotify's work, unless rescan has another period.
func start(t *testing.T, path string, rescan ...time.Duration) *running {
	t.Helper()
	r := &running{t: t, path: path, uids: map[string]string{}, news: make(chan struct{}, 1)}
	log := r.log.logger()
	r.events = event.NewRecorder(log)
	f, err := source.NewFile(source.FileConfig{Path: path, NodeName: "n", Log: log, Events: r.events})
	if err != nil {
		t.Fatal(err)
	}
	f.SetRescan(append(rescan, time.Hour)[0])
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx, r.set) }()
	stop := errors.New("the test is over")
	t.Cleanup(func() {
		cancel(stop)
		if err := <-ended; !errors.Is(err, stop) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return r
}

func (r *running) set(_ context.Context, wanted source.PodSet) {
	r.hold.Lock()
	defer r.hold.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, p := range wanted.Pods {
		_, tag, _ := strings.Cut(p.Spec.Containers[0].Image, ":")
		name := strings.TrimSuffix(p.Name, "-n")
		names = append(names, name+"="+tag)
		r.uids[name] = string(p.UID)
	}
	r.sets = append(r.sets, names)
	r.partial = wanted.Partial
	if r.partial {
		r.partials++
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// last is the last set and how many there were.
func (r *running) last() ([]string, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sets) == 0 {
		return nil, 0
	}
	return r.sets[len(r.sets)-1], len(r.sets)
}

// limit is how long a test waits for what must come.
const limit = 20 * time.Second

// quiet is how long a test waits for what must not come: longer than a File
// takes to act, or to complain.
const quiet = 800 * time.Millisecond

// want waits until the last set is just this.
func (r *running) want(pods ...string) {
	r.t.Helper()
	deadline := time.After(limit)
	for {
		got, n := r.last()
		if n > 0 && slices.Equal(got, pods) {
			return
		}
		select {
		case <-r.news:
		case <-deadline:
			r.t.Fatalf("pods %q in set %d, want %q; events %q", got, n, pods, warnings(r.events))
		}
	}
}

// still sees that nothing new comes.
func (r *running) still(sets int) {
	r.t.Helper()
	time.Sleep(quiet)
	if got, n := r.last(); n != sets {
		r.t.Fatalf("%d sets, the last %q, want %d", n, got, sets)
	}
}

// warned waits for one event after another, each with a part of its text,
// and a log line for each, and sees that there are no more.
func (r *running) warned(parts ...string) {
	r.t.Helper()
	deadline := time.Now().Add(limit)
	for len(warnings(r.events)) < len(parts) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(quiet)
	got := warnings(r.events)
	if len(got) != len(parts) {
		r.t.Fatalf("events %q, want %d", got, len(parts))
	}
	if n := r.log.events(); n != len(parts) {
		r.t.Errorf("%d log lines, want %d:\n%s", n, len(parts), r.log.String())
	}
	for i, part := range parts {
		if !strings.Contains(got[i], part) {
			r.t.Errorf("event %q, want %q in it", got[i], part)
		}
	}
}

func (r *running) write(name, text string) {
	r.t.Helper()
	write(r.t, filepath.Join(r.path, name), text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantPartial waits for a last set that is partial, or is not.
func (r *running) wantPartial(want bool) {
	r.t.Helper()
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		r.mu.Lock()
		got, n := r.partial, len(r.sets)
		r.mu.Unlock()
		if n > 0 && got == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("no set with partial=%t in %v", want, limit)
}

// TestFileUnreadAtStart checks that a manifest which is bad from the start
// makes the set partial until it is corrected or deleted, and that one which
// was good before does not.
func TestFileUnreadAtStart(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]struct{ text, cure string }{
		"half-written, completed": {"apiVersion: v1\nkind: Pod\nmetadata:\n  na", manifestText("b", "1")},
		"one of two, deleted":     {manifestText("b", "1") + "---\nkind: Pod\n", ""},
		"too large, shortened":    {strings.Repeat("# much too large\n", 700_000), manifestText("b", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			write(t, filepath.Join(folder, "a.yaml"), manifestText("a", "1"))
			write(t, filepath.Join(folder, "b.yaml"), bad.text)
			must(t, os.Mkdir(filepath.Join(folder, "folder"), 0o755))
			must(t, unix.Mkfifo(filepath.Join(folder, "pipe"), 0o644))
			r := start(t, folder)
			r.wantPartial(true)
			if bad.cure == "" {
				must(t, os.Remove(filepath.Join(folder, "b.yaml")))
				r.wantPartial(false)
				r.want("a=1")
			} else {
				r.write("b.yaml", bad.cure)
				r.wantPartial(false)
				r.want("a=1", "b=1")
			}
			r.write("a.yaml", "kind: Pod")
			r.write("late.yaml", "kind: Pod")
			r.write("more.yaml", manifestText("more", "1"))
			time.Sleep(quiet)
			r.wantPartial(false)
			if r.partials > 1 {
				t.Errorf("%d partial sets, want the first alone", r.partials)
			}
		})
	}
}

func TestFileFollowsAFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "b.yaml"), manifestText("b", "1"))
	write(t, filepath.Join(folder, "a.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"main","image":"example.com/main:1"}]}}`)
	write(t, filepath.Join(folder, ".hidden.yaml"), manifestText("hidden", "1"))
	must(t, os.Mkdir(filepath.Join(folder, "more"), 0o755))
	write(t, filepath.Join(folder, "more", "c.yaml"), manifestText("c", "1"))
	r := start(t, folder)
	in := func(name string) string { return filepath.Join(folder, name) }

	r.want("a=1", "b=1")
	r.write("c.yaml", manifestText("c", "1"))
	r.want("a=1", "b=1", "c=1")

	uid := r.uids["b"]
	r.write("b.yaml", manifestText("b", "2"))
	r.want("a=1", "b=2", "c=1")
	if r.uids["b"] == uid {
		t.Error("a changed manifest has the same UID")
	}
	r.write("b.yaml", manifestText("b", "1"))
	r.want("a=1", "b=1", "c=1")
	if r.uids["b"] != uid {
		t.Error("the same manifest has another UID")
	}

	must(t, os.Remove(in("a.json")))
	r.want("b=1", "c=1")
	must(t, os.Rename(in("c.yaml"), in(".c.yaml"))) // out
	r.want("b=1")
	must(t, os.Rename(in(".c.yaml"), in("c.yaml"))) // and in
	r.want("b=1", "c=1")
	write(t, in(".c.tmp"), manifestText("c", "2"))
	must(t, os.Rename(in(".c.tmp"), in("c.yaml"))) // atomic replacement
	r.want("b=1", "c=2")

	_, n := r.last()
	must(t, os.Rename(in("c.yaml"), in("d.yaml"))) // one set for both ends
	time.Sleep(quiet)
	if got, after := r.last(); after != n+1 || !slices.Equal(got, []string{"b=1", "c=2"}) {
		t.Errorf("%d sets for a rename, the last %q", after-n, got)
	}

	write(t, in("two.yaml"), manifestText("e", "1")+"---\n"+manifestText("f", "1"))
	r.want("b=1", "c=2", "e=1", "f=1")
	r.warned()
}

func TestFileIgnoresWhatChangesNothing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "a.yaml")
	write(t, path, manifestText("a", "1"))
	r := start(t, folder)
	r.want("a=1")

	must(t, os.Chmod(path, 0o600))
	must(t, os.Chtimes(path, time.Now(), time.Now()))
	r.write("a.yaml", manifestText("a", "1"))
	must(t, os.Mkdir(filepath.Join(folder, "sub"), 0o755))
	r.write(".a.yaml.swp", "x")
	r.still(1)

	// What an editor does: move away, write anew, remove the old one.
	must(t, os.Rename(path, filepath.Join(folder, "a.yaml~")))
	r.write("a.yaml", manifestText("a", "1"))
	must(t, os.Remove(filepath.Join(folder, "a.yaml~")))
	r.still(1)
	r.warned()
}

func TestFileKeepsPodsOfABadFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "a.yaml")
	good := manifestText("a", "1")
	write(t, path, good)
	write(t, filepath.Join(folder, "b.yaml"), manifestText("b", "1"))
	r := start(t, folder, 100*time.Millisecond)
	r.want("a=1", "b=1")

	var want []string
	for _, bad := range []struct {
		name string
		text string
		want string
	}{
		{"half", good[:len(good)/2], "InvalidManifest: " + path + ": decode v1 Pod"},
		{"another half", good[:strings.Index(good, "    image")], "InvalidManifest: " + path + ": spec.containers[0].image: Required"},
		{"empty", "", path + ": it is empty"},
		{"binary", "\x7fELF\x00\x00", path + ": it is binary"},
		{"another kind", "apiVersion: v1\nkind: Secret\n", path + `: kind "Secret"`},
		{"no name", strings.Replace(good, "name: a", "labels: {}", 1), path + ": metadata.name: Required"},
		{"too large", strings.Repeat("#", 10<<20+1), "UnreadableManifest: " + path + ": larger than"},
		{"text of 10 MB", strings.Repeat("all work and no play\n", 499000), path + ": document 1 has"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			r.t = t
			write(t, path, bad.text)
			want = append(want, bad.want)
			r.warned(want...)
			write(t, path, bad.text) // the same again, which the next row would count
			must(t, os.Chmod(path, 0o600))
			if _, n := r.last(); n != 1 {
				t.Errorf("%d sets", n)
			}
		})
	}
	r.t = t
	write(t, path, manifestText("a", "2"))
	r.want("a=2", "b=1")
	write(t, path, "nothing")
	must(t, os.Remove(path))
	r.want("b=1")
}

func TestFileKeepsPodsOfABadDocument(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "all.yaml")
	a, b, c := manifestText("a", "1"), manifestText("b", "1"), manifestText("c", "1")
	write(t, path, a+"---\n"+b+"---\n"+c)
	r := start(t, folder)
	r.want("a=1", "b=1", "c=1")
	bad := strings.Replace(b, "main:1", "main:1\n    imagePullPolicy: Maybe", 1)
	write(t, path, manifestText("a", "2")+"---\n"+bad+"---\n"+c)
	r.want("a=2", "c=1", "b=1")
	r.warned("InvalidManifest: " + path + ", document 2: spec.containers[0].imagePullPolicy")
	write(t, path, a)
	r.want("a=1")
}

func TestFileWarnsOfUnknownFields(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.want()
	r.write("a.yaml", manifestText("a", "1")+"  colour: red\n")
	r.want("a=1")
	r.warned(`UnknownField: ` + filepath.Join(r.path, "a.yaml") + `: unknown field "spec.colour"`)
}

func TestFileSkipsWhatIsNoFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	must(t, unix.Mkfifo(in("fifo.yaml"), 0o644))
	must(t, os.Symlink("/dev/zero", in("zero.yaml")))
	must(t, os.Symlink("nowhere", in("dangling.yaml")))
	must(t, os.Symlink("loop.yaml", in("loop.yaml")))
	write(t, in("a.yaml"), manifestText("a", "1"))
	r := start(t, folder)
	// The first set waits for what may be readable soon.
	must(t, os.Remove(in("dangling.yaml")))
	must(t, os.Remove(in("loop.yaml")))
	r.want("a=1")
	got := warnings(r.events)
	slices.Sort(got)
	want := []string{
		"UnreadableManifest: " + in("fifo.yaml") + ": not a regular file",
		"UnreadableManifest: " + in("zero.yaml") + ": not a regular file",
	}
	got = slices.DeleteFunc(got, func(s string) bool {
		return strings.Contains(s, "dangling") || strings.Contains(s, "loop")
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}

	// A manifest that becomes something else that cannot be read.
	must(t, os.Remove(in("a.yaml")))
	must(t, unix.Mkfifo(in("a.yaml"), 0o644))
	r.still(1)
	must(t, os.Remove(in("a.yaml")))
	must(t, os.Mkdir(in("a.yaml"), 0o755))
	r.want()
}

func TestFileFollowsAWriter(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.want()
	file, err := os.Create(filepath.Join(r.path, "a.yaml"))
	must(t, err)
	defer file.Close()
	for line := range strings.Lines(manifestText("a", "1")) {
		_, err := file.WriteString(line)
		must(t, err)
		time.Sleep(5 * time.Millisecond)
	}
	r.want("a=1")
}

func TestFileWithASlowConsumer(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.want()
	func() {
		r.hold.Lock()
		defer r.hold.Unlock()
		r.write("a.yaml", manifestText("a", "1"))
		time.Sleep(quiet) // the set of it waits to be taken
		r.write("b.yaml", manifestText("b", "1"))
		time.Sleep(quiet)
		r.write("c.yaml", manifestText("c", "1"))
		r.write("b.yaml", manifestText("b", "2"))
	}()
	r.want("a=1", "b=2", "c=1")
	r.still(3) // none, the first that waited, and one for all the rest
}

func TestFileFollowsAVolume(t *testing.T) {
	t.Parallel()
	// The layout that the atomic writer of a ConfigMap's volume makes.
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	version := func(name, tag string) {
		must(t, os.Mkdir(in(name), 0o755))
		write(t, filepath.Join(in(name), "a.yaml"), manifestText("a", tag))
		must(t, os.Symlink(name, in("..data_tmp")))
		must(t, os.Rename(in("..data_tmp"), in("..data")))
	}
	version("..v1", "1")
	must(t, os.Symlink("..data/a.yaml", in("a.yaml")))
	r := start(t, folder)
	r.want("a=1")
	uid := r.uids["a"]
	version("..v2", "2")
	must(t, os.RemoveAll(in("..v1")))
	r.want("a=2")
	version("..v3", "1")
	must(t, os.RemoveAll(in("..v2")))
	r.want("a=1")
	if r.uids["a"] != uid {
		t.Error("the same manifest has another UID")
	}
	r.warned()
}

func TestFileFollowsALink(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	target := filepath.Join(elsewhere, "target.yaml")
	write(t, target, manifestText("a", "1"))
	folder := t.TempDir()
	must(t, os.Symlink(target, filepath.Join(folder, "a.yaml")))
	r := start(t, folder)
	r.want("a=1")
	time.Sleep(quiet) // the watch of the target is made a moment later
	write(t, target, manifestText("a", "2"))
	r.want("a=2")
}

func TestFileFollowsItsFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	parent := filepath.Join(root, "etc", "kubernetes")
	folder := filepath.Join(parent, "manifests")
	r := start(t, folder)
	r.want() // a folder that is missing wants nothing

	must(t, os.MkdirAll(folder, 0o755))
	r.write("a.yaml", manifestText("a", "1"))
	r.want("a=1")
	uid := r.uids["a"]

	must(t, os.RemoveAll(parent))
	r.want()
	must(t, os.MkdirAll(folder, 0o755))
	time.Sleep(quiet)
	r.write("a.yaml", manifestText("a", "1"))
	r.want("a=1")
	if r.uids["a"] != uid {
		t.Error("the same manifest has another UID")
	}

	// Swapped for another folder: what both have stays.
	_, n := r.last()
	next := filepath.Join(parent, "next")
	must(t, os.Mkdir(next, 0o755))
	write(t, filepath.Join(next, "a.yaml"), manifestText("a", "1"))
	write(t, filepath.Join(next, "b.yaml"), manifestText("b", "1"))
	must(t, os.Rename(folder, filepath.Join(parent, "old")))
	must(t, os.Rename(next, folder))
	r.want("a=1", "b=1")
	if _, after := r.last(); after != n+1 {
		t.Errorf("%d sets for a swap", after-n)
	}
	write(t, filepath.Join(parent, "old", "a.yaml"), manifestText("a", "9"))
	r.write("b.yaml", manifestText("b", "2"))
	r.want("a=1", "b=2")

	// A link to a folder, pointed elsewhere.
	must(t, os.Rename(folder, filepath.Join(parent, "new")))
	must(t, os.Symlink("old", folder))
	r.want("a=9")
	must(t, os.Symlink("new", filepath.Join(parent, "link")))
	must(t, os.Rename(filepath.Join(parent, "link"), folder))
	r.want("a=1", "b=2")
	r.write("b.yaml", manifestText("b", "3"))
	r.want("a=1", "b=3")
	r.warned()
}

func TestFileOfOneManifest(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "only.yaml")
	write(t, filepath.Join(folder, "other.yaml"), manifestText("other", "1"))
	r := start(t, path)
	r.want()
	write(t, path, manifestText("a", "1"))
	r.want("a=1")
	write(t, path, manifestText("a", "2"))
	r.want("a=2")
	next := filepath.Join(folder, "next")
	write(t, next, manifestText("a", "3"))
	must(t, os.Rename(next, path))
	r.want("a=3")
	write(t, filepath.Join(folder, "other.yaml"), manifestText("other", "2"))
	_, n := r.last()
	r.still(n)
	must(t, os.Remove(path))
	r.want()
	r.warned()
}

func TestFileWithTwoOfOneName(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	write(t, in("b.yaml"), manifestText("web", "1"))
	r := start(t, folder)
	r.want("web=1")
	r.write("a.yaml", manifestText("web", "2")+"---\n"+manifestText("more", "1"))
	r.want("web=1", "more=1")
	r.warned("DuplicatePod: " + in("a.yaml") + ": duplicate pod name: " + in("b.yaml"))
	r.write("b.yaml", manifestText("web", "3"))
	r.want("web=3", "more=1")
	r.warned("DuplicatePod")
	must(t, os.Remove(in("b.yaml")))
	r.want("web=2", "more=1")
	r.write("b.yaml", manifestText("web", "3"))
	r.warned("DuplicatePod", "DuplicatePod: "+in("b.yaml"))
}

// TestFileWithABackup checks that the edited manifest takes precedence over the
// copies that editors and people leave next to it.
func TestFileWithABackup(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"web.yaml.bak", "web.yaml~", "web.yaml.orig", ".web.yaml.swp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			write(t, filepath.Join(folder, name), manifestText("web", "1"))
			write(t, filepath.Join(folder, "web.yaml"), manifestText("web", "2"))
			r := start(t, folder)
			r.want("web=2")
			r.write("web.yaml", manifestText("web", "3"))
			r.want("web=3")
			r.write(name, manifestText("web", "2"))
			r.write("web.yaml", manifestText("web", "4"))
			r.want("web=4")
		})
	}
}

func TestFileOfAnUnreadableFolder(t *testing.T) {
	t.Parallel()
	t.Run("at start", func(t *testing.T) {
		root := t.TempDir()
		write(t, filepath.Join(root, "file"), "")
		r := start(t, filepath.Join(root, "file", "manifests"), 50*time.Millisecond)
		r.warned("UnreadableManifest: stat " + r.path + ": not a directory")
		if _, n := r.last(); n != 0 {
			t.Fatal("handed over a set of a folder that cannot be read")
		}
		must(t, os.Remove(filepath.Join(root, "file")))
		r.want()
	})
	t.Run("later", func(t *testing.T) {
		root := t.TempDir()
		folder := filepath.Join(root, "manifests")
		must(t, os.Mkdir(folder, 0o755))
		write(t, filepath.Join(folder, "a.yaml"), manifestText("a", "1"))
		r := start(t, folder)
		r.want("a=1")
		loop := filepath.Join(root, "loop")
		must(t, os.Symlink("manifests", loop))
		must(t, unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, loop, unix.RENAME_EXCHANGE))
		r.warned("UnreadableManifest: stat " + folder + ": too many levels of symbolic links")
		r.still(1)
		must(t, unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, loop, unix.RENAME_EXCHANGE))
		r.write("a.yaml", manifestText("a", "2"))
		r.want("a=2")
	})
}

// TestFileWithoutDescriptors exhausts the process's file descriptors: the pods
// stay, and changes take effect when there are descriptors again.
func TestFileWithoutDescriptors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first bool // before the start, so that there is no inotify either
	}{{"later", false}, {"at start", true}} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, filepath.Join(folder, "a.yaml"), manifestText("a", "1"))
			const fast = 50 * time.Millisecond
			var r *running
			if !tt.first {
				r = start(t, folder, fast)
				r.want("a=1")
			}
			// A path of its own, made with descriptors that are open already.
			root, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			must(t, err)
			defer unix.Close(root)
			var old unix.Rlimit
			must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
			must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}))
			restore := sync.OnceFunc(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) })
			defer restore()
			if tt.first {
				r = start(t, folder, fast)
			} else {
				must(t, unix.Symlinkat("b", root, "c.yaml"))
			}
			r.warned("UnreadableManifest: list " + folder + ": too many open files")
			if _, n := r.last(); n > 1 || (tt.first && n > 0) {
				t.Fatalf("%d sets without descriptors", n)
			}
			restore()
			must(t, os.RemoveAll(filepath.Join(folder, "c.yaml")))
			write(t, filepath.Join(folder, "b.yaml"), manifestText("b", "1"))
			r.want("a=1", "b=1")
		})
	}
}

func TestNewFileRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	good := source.FileConfig{Path: "/x", NodeName: "n", Log: log, Events: event.NewRecorder(log)}
	for _, tt := range []struct {
		name   string
		change func(*source.FileConfig)
	}{
		{"no path", func(c *source.FileConfig) { c.Path = "" }},
		{"zero byte", func(c *source.FileConfig) { c.Path = "/a\x00b" }},
		{"no node name", func(c *source.FileConfig) { c.NodeName = "" }},
		{"no log", func(c *source.FileConfig) { c.Log = nil }},
		{"no events", func(c *source.FileConfig) { c.Events = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := good
			tt.change(&config)
			if _, err := source.NewFile(config); err == nil {
				t.Error("accepted")
			}
		})
	}
	if _, err := source.NewFile(good); err != nil {
		t.Error(err)
	}
}
