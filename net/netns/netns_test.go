package netns

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// pinned makes a pin that goes with the test.
func pinned(t testing.TB, path string) *os.File {
	t.Helper()
	t.Cleanup(func() { _ = Remove(path) })
	err := Create(path)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("no network namespace can be made: tests of networks need root")
	}
	if err != nil {
		t.Fatal(err)
	}
	ns, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func TestLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "netns")
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if names, err := List(dir); err != nil || names != nil {
		t.Errorf("a folder that is not there: %v, %v", names, err)
	}
	a, b := pinned(t, one), pinned(t, two)
	if Same(a, b) {
		t.Error("two namespaces are one")
	}
	again, err := Open(one)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if !Same(a, again) {
		t.Error("one namespace is two")
	}
	if err := Create(one); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a pin that is there: %v", err)
	}
	if names, err := List(dir); err != nil || !slices.Equal(names, []string{"one", "two"}) {
		t.Errorf("list: %v, %v", names, err)
	}
	for range 2 {
		if err := Remove(one); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(one); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pin that is gone: %v", err)
	}
	if names, _ := List(dir); !slices.Equal(names, []string{"two"}) {
		t.Errorf("list: %v", names)
	}
	again.Close()
	if Same(a, again) || Same(again, again) {
		t.Error("a closed file is a namespace")
	}
}

func TestNewIsEmptyAndTheThreadStays(t *testing.T) {
	ns := pinned(t, filepath.Join(t.TempDir(), "new"))
	own, err := Open(ownNamespace)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for range 32 {
		now, err := Open(ownNamespace)
		if err != nil || Same(now, ns) || !Same(now, own) {
			t.Fatalf("a thread is elsewhere: %v", err)
		}
		now.Close()
	}
	if err := netlink.In(ns, func() error {
		all, err := net.Interfaces()
		if len(all) != 1 || all[0].Flags&net.FlagLoopback == 0 || all[0].Flags&net.FlagUp != 0 {
			t.Errorf("a new namespace has %v", all)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	file, fifo, link := filepath.Join(dir, "file"), filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/ns/net", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, fifo, dir, "/dev/null", "/proc/self/ns/uts", "/proc/self/status"} {
		if ns, err := Open(path); !errors.Is(err, ErrNotNamespace) {
			t.Errorf("open %s: %v, %v", path, ns, err)
		}
	}
	for _, path := range []string{file, fifo, dir, link, link + "/below"} {
		if err := Create(path); err == nil {
			t.Errorf("create %s: no error", path)
		}
	}
	for _, path := range []string{file, fifo, dir, link, "/proc/self/ns/net"} {
		if err := Remove(path); err == nil {
			t.Errorf("remove %s: no error", path)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("it was removed: %v", err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	if ns, err := Open(link); err != nil {
		t.Error(err)
	} else {
		ns.Close()
	}
}

func TestLeftover(t *testing.T) {
	nstest.New(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "left")
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if names, err := List(dir); err != nil || len(names) != 1 {
		t.Errorf("list: %v, %v", names, err)
	}
	if err := Remove(path); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	ns := pinned(t, path)
	// Two pins on one file, as calls without the lock would make them.
	if err := unix.Mount(ownNamespace, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	ns.Close()
}

func TestCreateAtOnce(t *testing.T) {
	nstest.New(t)
	path := filepath.Join(t.TempDir(), "one")
	t.Cleanup(func() { _ = Remove(path) })
	var group sync.WaitGroup
	results := make([]error, 16)
	for i := range results {
		group.Go(func() { results[i] = Create(path) })
	}
	group.Wait()
	made := 0
	for _, err := range results {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, fs.ErrExist):
			t.Error(err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(mounts), " "+path+" "); made != 1 || n != 1 {
		t.Errorf("%d calls made %d mounts", made, n)
	}
}

// A mount namespace that was made meanwhile has a copy of the pin, which must
// not keep it.
func TestRemoveFromAllMountNamespaces(t *testing.T) {
	program, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("no unshare program")
	}
	path := filepath.Join(t.TempDir(), "one")
	pinned(t, path).Close()
	cmd := exec.Command(program, "--mount", "--propagation", "private", "sh", "-c",
		`echo ready; read line; grep -c " $0 " /proc/self/mountinfo; exit 0`, path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := out.Read(buf); err != nil || string(buf[:n]) != "ready\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if err := Remove(path); err != nil {
		t.Error(err)
	}
	in.Close()
	n, _ := out.Read(buf)
	if err := cmd.Wait(); err != nil || string(buf[:n]) != "0\n" {
		t.Errorf("the other mount namespace has %q pins, %v", buf[:n], err)
	}
}

func TestWitness(t *testing.T) {
	program, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("no nsenter program")
	}
	path := filepath.Join(t.TempDir(), "one")
	ns := pinned(t, path)
	out, err := exec.Command(program, "--net="+path, "stat", "-L", "-c", "%i", "/proc/self/ns/net").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	id, err := IDOf(ns)
	if err != nil {
		t.Fatal(err)
	}
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil || s.Ino != id.Inode {
		t.Errorf("%d and %d, %v", s.Ino, id.Inode, err)
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	path := filepath.Join(b.TempDir(), "one")
	pinned(b, path).Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := Remove(path); err != nil {
			b.Fatal(err)
		}
		if err := Create(path); err != nil {
			b.Fatal(err)
		}
	}
}
