package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openLevels is how many levels a walk keeps open.
const openLevels = 64

// nest makes so many directories in one another, with a file in each, and two
// files and a directory beside the way at every hundredth. It returns how many
// names these are.
func nest(t *testing.T, dir string, levels int) (names int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) {
		f, err := unix.Openat(at, name, unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(f)
		names++
	}
	for i := range levels {
		file("f")
		if i%100 == 0 {
			file("a")
			file("z")
			if err := unix.Mkdirat(at, "side", 0o700); err != nil {
				t.Fatal(err)
			}
			names++
		}
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		names++
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	t.Cleanup(func() { // with os.RemoveAll each level holds a file
		parent, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer parent.Close()
		if err := removeTree(context.Background(), parent, "d"); err != nil {
			t.Error(err)
		}
	})
	return names
}

func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func openDir(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// A walk visits each name once, however deep it lies, and each directory after
// what is in it, with few open files and little memory.
func TestWalkOfADeepTree(t *testing.T) {
	dir := t.TempDir()
	names := nest(t, dir, 1500)
	for i := range 5_000 {
		put(t, fmt.Sprintf("%s/wide/%d", dir, i), "")
	}
	names += 5_001
	fd := openDir(t, dir)
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun, visits, dirs := openFiles(t), 0, 0
	visited := map[uint64]int{}
	err := walk(t.Context(), fd, func(_ int, name string, st *unix.Statx_t) error {
		visits++
		if name == "" {
			dirs++
			visited[st.Ino]++
		}
		if visits%2000 == 0 {
			if n := openFiles(t) - begun; n > openLevels+2 {
				t.Errorf("%d files are open", n)
			}
			runtime.GC()
			if runtime.ReadMemStats(&during); during.HeapAlloc > before.HeapAlloc+1<<20 {
				t.Errorf("after %d visits the heap has grown by %d KiB", visits, (during.HeapAlloc-before.HeapAlloc)>>10)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if visits != names+1 || dirs != 1500+15+1+1 || len(visited) != dirs {
		t.Errorf("%d visits, %d of %d directories; want %d", visits, dirs, len(visited), names+1)
	}
	if n := openFiles(t); n != begun {
		t.Errorf("%d files are left open", n-begun)
	}
}

// A container nests directories in its claim deeper than the agent keeps open.
// The group of the claim is still set to the next pod's fsGroup.
func TestOwnershipOfADeepTree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	dir := t.TempDir()
	nest(t, dir, 600)
	if err := setTreeGroup(t.Context(), openDir(t, dir), 77, false); err != nil {
		t.Fatal(err)
	}
	err := walk(t.Context(), openDir(t, dir), func(_ int, name string, st *unix.Statx_t) error {
		if st.Gid != 77 {
			return fmt.Errorf("%q belongs to group %d", name, st.Gid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A walk never leaves the tree through a directory that is moved during the walk. It goes on
// in what is left of the tree.
func TestWalkOfAMovedDirectory(t *testing.T) {
	root := t.TempDir()
	dir := root + "/tree"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	nest(t, dir, 3*openLevels)
	put(t, root+"/outside/file", "")
	var deepest unix.Stat_t
	if err := unix.Stat(dir+strings.Repeat("/d", 3*openLevels), &deepest); err != nil {
		t.Fatal(err)
	}
	err := walk(t.Context(), openDir(t, dir), func(_ int, name string, st *unix.Statx_t) error {
		if name == "file" {
			t.Error("the walk left its tree")
		}
		if name == "" && st.Ino == deepest.Ino { // now the way back leads outside
			return os.Rename(dir+strings.Repeat("/d", openLevels), root+"/outside/d")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(root + "/outside"); err != nil {
		t.Fatal(err)
	}
}

func TestWalkIsBrokenOff(t *testing.T) {
	dir := t.TempDir()
	nest(t, dir, 100)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	begun := openFiles(t)
	fd := openDir(t, dir)
	err := walk(ctx, fd, func(int, string, *unix.Statx_t) error {
		cancel(gone)
		return nil
	})
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if n := openFiles(t); n != begun+1 {
		t.Errorf("%d files are left open", n-begun-1)
	}
}
