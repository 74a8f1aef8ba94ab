package diskusage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func never() bool { return false }

// put creates a file with that many bytes.
func put(t testing.TB, path string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// blocks returns the bytes of the blocks of the named files.
func blocks(t testing.TB, paths ...string) (bytes uint64) {
	t.Helper()
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		bytes += uint64(st.Blocks) * 512
	}
	return bytes
}

// mounted mounts a tmpfs at a directory, in this process's own mount namespace, and
// skips the test if that is not permitted.
func mounted(t testing.TB, dir, options string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting needs root")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	})
	return dir
}

// whole walks a place in steps of that many entries.
func whole(t testing.TB, w *Walk, p Place, entries int) (steps int) {
	t.Helper()
	var k Walker
	for steps = 1; ; steps++ {
		took, done, err := k.Measure(w, p, entries, never)
		if err != nil {
			t.Fatal(err)
		}
		if len(k.open) > 0 {
			t.Fatalf("%d directories are left open", len(k.open))
		}
		if done {
			return steps
		}
		if took < entries {
			t.Fatalf("step %d took %d of %d entries and is not done", steps, took, entries)
		}
	}
}

func TestWalk(t *testing.T) {
	outside := t.TempDir()
	put(t, outside+"/big", 1<<20)
	for _, tc := range []struct {
		name string
		// fill answers the files that count, beside the directory itself.
		fill   func(t *testing.T, dir string) []string
		inodes uint64
	}{
		{"empty", func(*testing.T, string) []string { return nil }, 1},
		{"files", func(t *testing.T, dir string) []string {
			put(t, dir+"/a", 5000)
			put(t, dir+"/d/e/b", 70000)
			return []string{"a", "d", "d/e", "d/e/b"}
		}, 5},
		{"a hole", func(t *testing.T, dir string) []string {
			put(t, dir+"/a", 0)
			if err := os.Truncate(dir+"/a", 1<<40); err != nil {
				t.Fatal(err)
			}
			return []string{"a"}
		}, 2},
		{"hard links", func(t *testing.T, dir string) []string {
			put(t, dir+"/d/a", 1<<16)
			for i := range 6 {
				if err := os.Link(dir+"/d/a", fmt.Sprintf("%s/l%d", dir, i)); err != nil {
					t.Fatal(err)
				}
			}
			return []string{"d", "d/a"}
		}, 3},
		{"symbolic links", func(t *testing.T, dir string) []string {
			for name, to := range map[string]string{"up": "..", "out": outside, "file": outside + "/big", "self": "self"} {
				if err := os.Symlink(to, dir+"/"+name); err != nil {
					t.Fatal(err)
				}
			}
			return []string{"up", "out", "file", "self"}
		}, 5},
		{"other files", func(t *testing.T, dir string) []string {
			if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
				t.Fatal(err)
			}
			put(t, dir+"/"+strings.Repeat("n", 255), 1)
			put(t, dir+"/new\nline", 1)
			return []string{"fifo", strings.Repeat("n", 255), "new\nline"}
		}, 4},
		{"a mount", func(t *testing.T, dir string) []string {
			put(t, mounted(t, dir+"/m", "")+"/big", 1<<20)
			return nil
		}, 1},
		{"its own file system, mounted again", func(t *testing.T, dir string) []string {
			mounted(t, dir+"/m", "") // skips
			if err := errors.Join(unix.Unmount(dir+"/m", 0), unix.Mount(outside, dir+"/m", "", unix.MS_BIND, "")); err != nil {
				t.Fatal(err)
			}
			put(t, dir+"/f", 0)
			if err := unix.Mount(outside+"/big", dir+"/f", "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir+"/f", unix.MNT_DETACH) })
			return nil
		}, 1},
	} {
		for _, careful := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, careful), func(t *testing.T) {
				root := t.TempDir()
				dir := root + "/pods/u/v"
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				paths := []string{dir}
				for _, path := range tc.fill(t, dir) {
					paths = append(paths, dir+"/"+path)
				}
				want := Usage{blocks(t, paths...), tc.inodes}
				for _, entries := range []int{1, 2, 7, math.MaxInt} {
					w := Walk{HasMounts: careful}
					whole(t, &w, Place{root, "pods/u/v"}, entries)
					if got := w.Usage(); got != want || w.Err() != nil {
						t.Errorf("in steps of %d: %+v, %v, want %+v", entries, got, w.Err(), want)
					}
				}
			})
		}
	}
}

// forest creates a tree of many directories, and returns its usage.
func forest(t testing.TB, dir string) Usage {
	t.Helper()
	paths := []string{dir}
	for i := range 12 {
		for j := range 9 {
			sub := fmt.Sprintf("%s/%d/%d", dir, i, j)
			for k := range 40 {
				put(t, fmt.Sprintf("%s/%d", sub, k), k*300)
				paths = append(paths, fmt.Sprintf("%s/%d", sub, k))
			}
			paths = append(paths, sub)
		}
		paths = append(paths, fmt.Sprintf("%s/%d", dir, i))
	}
	return Usage{blocks(t, paths...), uint64(len(paths))}
}

// TestWalkSteps checks that a tree larger than a step is counted exactly once,
// wherever steps end, and that nothing stays open between them.
func TestWalkSteps(t *testing.T) {
	for _, memory := range []bool{false, true} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			root := t.TempDir()
			if memory {
				mounted(t, root+"/t", "")
			}
			want := forest(t, root+"/t")
			for _, entries := range []int{13, 100, 999, 1 << 20} {
				var w Walk
				steps := whole(t, &w, Place{root, "t"}, entries)
				if got := w.Usage(); got != want || w.Err() != nil {
					t.Errorf("in steps of %d: %+v, %v, want %+v", entries, got, w.Err(), want)
				}
				if least := int(want.Inodes) / (entries + 1); steps < least || entries > 1<<15 && steps != 1 {
					t.Errorf("%d steps of %d entries", steps, entries)
				}
				if took, done := new(Walker).Step(&w, -1, 1, never); took != 0 || !done {
					t.Errorf("a walk that is done took %d more, %v", took, done)
				}
			}
		})
	}
}

func TestWalkStops(t *testing.T) {
	root := t.TempDir()
	want := forest(t, root+"/t")
	var w Walk
	var k Walker
	calls := 0
	for done := false; !done; {
		_, done, _ = k.Measure(&w, Place{root, "t"}, math.MaxInt, func() bool { calls++; return calls%3 == 0 })
	}
	if w.Usage() != want || calls < int(want.Inodes)/checkEvery {
		t.Errorf("got %+v, want %+v, %d calls", w.Usage(), want, calls)
	}
}

// TestWalkVanishing checks that removals between two steps, also of the directory in
// which the walk stopped and of its parents, do not end the walk.
func TestWalkVanishing(t *testing.T) {
	for name, change := range map[string]func(root string) error{
		"all below": func(root string) error {
			entries, err := os.ReadDir(root + "/t")
			for _, e := range entries {
				err = errors.Join(err, os.RemoveAll(root+"/t/"+e.Name()))
			}
			return err
		},
		"the tree": func(root string) error { return os.RemoveAll(root + "/t") },
		"another in its place": func(root string) error {
			// Both exist at once, so that the inodes differ.
			return errors.Join(os.Mkdir(root+"/n", 0o755), os.Rename(root+"/t", root+"/old"), os.Rename(root+"/n", root+"/t"))
		},
		"links in place of directories": func(root string) error {
			entries, err := os.ReadDir(root + "/t")
			for _, e := range entries {
				path := root + "/t/" + e.Name()
				err = errors.Join(err, os.Rename(path, root+"/moved-"+e.Name()), os.Symlink("/", path))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			all := forest(t, root+"/t")
			var w Walk
			var k Walker
			if _, done, err := k.Measure(&w, Place{root, "t"}, 1000, never); done || err != nil {
				t.Fatal(done, err)
			}
			before := w.Usage()
			if err := change(root); err != nil {
				t.Fatal(err)
			}
			_, done, err := k.Measure(&w, Place{root, "t"}, math.MaxInt, never)
			if !done || err != nil && !errors.Is(err, fs.ErrNotExist) || w.Err() != nil {
				t.Errorf("got %v, %v, %v", done, err, w.Err())
			}
			if got := w.Usage(); got.Inodes < before.Inodes || got.Inodes >= all.Inodes {
				t.Errorf("counted %d inodes, %d before, of %d", got.Inodes, before.Inodes, all.Inodes)
			}
		})
	}
}

// nested creates that many nested directories, each with a file "z" of 4096 bytes. It
// returns the deepest one, open, and the tree's usage.
func nested(t testing.TB, dir string, levels int) (deepest int, usage Usage) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	add := func(fd int) {
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		usage.Bytes += uint64(st.Blocks) * 512
		usage.Inodes++
	}
	for range levels {
		fill(t, at, "z", 4096, add)
		if err := unix.Mkdirat(at, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		add(at)
		_ = unix.Close(at)
		at = next
	}
	add(at)
	t.Cleanup(func() { _ = unix.Close(at) })
	return at, usage
}

// fill creates a file with that many bytes in an open directory.
func fill(t testing.TB, dir int, name string, size int, then func(fd int)) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	then(fd)
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestWalkDeep checks that deeply nested files are counted exactly once, wherever
// steps end, and with few open files.
func TestWalkDeep(t *testing.T) {
	for _, memory := range []bool{false, true} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			root := t.TempDir()
			if memory {
				mounted(t, root+"/t", "")
			}
			deepest, want := nested(t, root+"/t", 600)
			fill(t, deepest, "hidden", 1<<20, func(fd int) {
				var st unix.Stat_t
				if err := unix.Fstat(fd, &st); err != nil {
					t.Fatal(err)
				}
				if st.Blocks < 1<<11 {
					t.Fatalf("the file has %d blocks", st.Blocks)
				}
				want.Bytes += uint64(st.Blocks) * 512
				want.Inodes++
			})
			for _, entries := range []int{1, 13, 500, math.MaxInt} {
				begun, most := openFiles(t), 0
				var w Walk
				var k Walker
				for done := false; !done; {
					var err error
					if _, done, err = k.Measure(&w, Place{root, "t"}, entries, func() bool {
						most = max(most, len(k.open))
						return false
					}); err != nil {
						t.Fatal(err)
					}
				}
				if w.Usage() != want || w.Err() != nil {
					t.Errorf("in steps of %d: %+v, %v, want %+v", entries, w.Usage(), w.Err(), want)
				}
				if n := openFiles(t); n != begun || most > openLevels+1 {
					t.Errorf("in steps of %d: %d files are left open, %d were", entries, n-begun, most)
				}
			}
		})
	}
}

// TestWalkDropped checks that an abandoned walk leaves nothing open.
func TestWalkDropped(t *testing.T) {
	root := t.TempDir()
	nested(t, root+"/t", 2*openLevels)
	begun := openFiles(t)
	var w Walk
	if _, done, err := new(Walker).Measure(&w, Place{root, "t"}, 3*openLevels, never); done || err != nil || w.held == nil {
		t.Fatal(done, err, w.held)
	}
	w.Drop()
	if n := openFiles(t); n != begun {
		t.Errorf("%d files are left open", n-begun)
	}
}

// TestWalkMoved checks that deep directories that are moved out while the walk is
// below them hide no other files, and do not lead the walk out of its tree.
func TestWalkMoved(t *testing.T) {
	for _, memory := range []bool{false, true} {
		for _, entries := range []int{1, 20, math.MaxInt} {
			t.Run(fmt.Sprint(memory, entries), func(t *testing.T) {
				root := t.TempDir()
				if memory {
					mounted(t, root, "")
				}
				const levels = 3 * openLevels
				deepest, want := nested(t, root+"/t", levels)
				for i := range 2 * checkEvery {
					fill(t, deepest, fmt.Sprint(i), 0, func(int) { want.Inodes++ })
				}
				want.Bytes += blocks(t, root+"/t"+strings.Repeat("/d", levels)) - blocks(t, root+"/t"+strings.Repeat("/d", levels-1))
				put(t, root+"/outside/secret/f", 1<<20)
				var bottom unix.Stat_t
				if err := unix.Fstat(deepest, &bottom); err != nil {
					t.Fatal(err)
				}
				var k Walker
				var w Walk
				moved := false
				move := func(at uint64) {
					if moved || at != bottom.Ino {
						return
					}
					moved = true
					if err := os.Rename(root+"/t"+strings.Repeat("/d", 2*openLevels), root+"/outside/d"); err != nil {
						t.Error(err)
					}
				}
				for done := false; !done; {
					var err error
					if _, done, err = k.Measure(&w, Place{root, "t"}, entries, func() bool {
						move(k.top().ino)
						return false
					}); err != nil {
						t.Fatal(err)
					}
					if w.held != nil {
						move(w.deepest.ino)
					}
				}
				if got := w.Usage(); !moved || got != want || w.Err() != nil {
					t.Errorf("moved %v: %+v, %v, want %+v", moved, got, w.Err(), want)
				}
			})
		}
	}
}

func TestPlace(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	put(t, outside+"/secret/f", 4096)
	put(t, root+"/real/d/f", 4096)
	put(t, root+"/hosts", 4096)
	for path, to := range map[string]string{"out": outside + "/secret", "in": "real/d", "link": "hosts"} {
		if err := os.Symlink(to, root+"/"+path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root, outside+"/root"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		root, path string
		inodes     uint64
		fails      error
	}{
		{root, "real/d", 2, nil},
		{outside + "/root", "real/d", 2, nil},
		{root, "hosts", 1, nil},
		{root, "none", 0, fs.ErrNotExist},
		{root + "/none", "x", 0, fs.ErrNotExist},
		{root, "out", 0, errLink},
		{root, "in", 0, errLink},
		{root, "link", 0, errLink},
		{root, "out/f", 0, unix.ELOOP},
		{root, "in/f", 0, unix.ELOOP},
		{root, "../" + filepath.Base(outside), 0, unix.EXDEV},
		{root, outside, 0, unix.EXDEV},
		{root, "real\x00", 0, unix.EINVAL},
		{"", "", 0, fs.ErrNotExist},
	} {
		t.Run(tc.path, func(t *testing.T) {
			var w Walk
			_, done, err := new(Walker).Measure(&w, Place{tc.root, tc.path}, math.MaxInt, never)
			if !done || !errors.Is(err, tc.fails) || w.Usage().Inodes != tc.inodes {
				t.Errorf("got %v, %v, %+v", done, err, w.Usage())
			}
		})
	}
}
