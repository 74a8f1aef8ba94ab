package cgroups

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAttach(t *testing.T) {
	f := newFake(t, "cpu memory")
	if err := f.Ensure("one", Resources{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Attach("one", 7); err != nil {
		t.Fatal(err)
	}
	if got := f.get(f.at("one", fileProcs)); got != "7" {
		t.Errorf("cgroup.procs is %q", got)
	}
	if err := f.Attach("two", 7); !errors.Is(err, ErrNotFound) {
		t.Errorf("no group: %v", err)
	}
	if err := f.Attach("../one", 7); err == nil {
		t.Error("a path that leaves the root was taken")
	}
}

// What the kernel makes of it.
func TestAttachProcess(t *testing.T) {
	tree, path := group(t, Resources{})
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	if err := tree.Attach(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if pid, err := tree.Process(path); err != nil || pid != cmd.Process.Pid {
		t.Errorf("the group has process %d (%v), not %d", pid, err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := tree.Attach(path, cmd.Process.Pid); !errors.Is(err, unix.ESRCH) {
		t.Errorf("an ended process: %v", err)
	}
}

func TestProcess(t *testing.T) {
	f := newFake(t, "memory")
	for _, tc := range []struct {
		name, procs string
		want        int
		fails       bool
	}{
		{name: "none", procs: ""},
		{name: "one", procs: "42\n", want: 42},
		{name: "many", procs: "4194304\n4194303\n4194302\n4194301\n4194300\n", want: 4194304},
		{name: "elsewhere", procs: "0\n"},
		{name: "torn", procs: "42", fails: true},
		{name: "other", procs: "x\n", fails: true},
	} {
		if err := f.Ensure(tc.name, Resources{}); err != nil {
			t.Fatal(err)
		}
		f.put(f.at(tc.name, fileProcs), tc.procs)
		if got, err := f.Process("/" + tc.name); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %d, %v", tc.name, got, err)
		}
	}
	if _, err := f.Process("missing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing group: %v", err)
	}
	if _, err := f.Process("../outside"); err == nil {
		t.Error("a path that leaves the root")
	}
}

func TestPopulated(t *testing.T) {
	f := newFake(t, "memory")
	for _, tc := range []struct {
		name, events string
		want, fails  bool
	}{
		{name: "none", events: "populated 0\nfrozen 0\n"},
		{name: "some", events: "populated 1\nfrozen 0\n", want: true},
		{name: "later", events: "frozen 1\npopulated 1\n", want: true},
		{name: "empty", events: "", fails: true},
		{name: "other", events: "frozen 0\n", fails: true},
		{name: "no number", events: "populated x\n", fails: true},
	} {
		if err := f.Ensure(tc.name, Resources{}); err != nil {
			t.Fatal(err)
		}
		f.put(f.at(tc.name, fileEvents), tc.events)
		if got, err := f.Populated("/" + tc.name); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %v, %v", tc.name, got, err)
		}
	}
	if got, err := f.Populated("missing"); got || err != nil {
		t.Errorf("a missing group: %v, %v", got, err)
	}
	if _, err := f.Populated("../outside"); err == nil {
		t.Error("a path that leaves the root")
	}
}

func TestAGroupMadeAgainHasAnotherNumber(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	dir := filepath.Join(tree.root, "a")
	if _, err := tree.ID("/a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a group that does not exist: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := tree.ID("/a")
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	// A folder elsewhere keeps the first number taken until its name goes.
	if err := os.Rename(dir, dir+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if again, err := tree.ID("/a"); err != nil || again == first {
		t.Errorf("the same number %d, %v", again, err)
	}
	if _, err := tree.ID("/../a"); err == nil {
		t.Error("a path that leaves the root has a number")
	}
}

func TestCPUs(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	writeGroup(t, tree, "/a", map[string]string{fileCPUs: "0-1\n"})
	writeGroup(t, tree, "/b", nil)
	if got, err := tree.CPUs("/a"); got != "0-1" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := tree.SetCPUs("/a", "3"); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.CPUs("/a"); got != "3" || err != nil {
		t.Errorf("read %q after 3 was written, %v", got, err)
	}
	for path, want := range map[string]error{"/b": ErrController, "/c": ErrNotFound} {
		if _, err := tree.CPUs(path); !errors.Is(err, want) {
			t.Errorf("read in %s: %v, want %v", path, err, want)
		}
		if err := tree.SetCPUs(path, "1"); !errors.Is(err, want) {
			t.Errorf("write in %s: %v, want %v", path, err, want)
		}
	}
	if _, err := tree.CPUs("/../a"); err == nil {
		t.Error("a path that leaves the root is read")
	}
}

func TestParseOwn(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system/tinylet\n": "/system/tinylet",
		"0::/\n":               "/",
		"3:net_cls:/\n1:name=openrc:/x\n0::/own\n": "/own",
		"0::/a b\t\n":                  "/a b\t",
		"0::/../beside\n":              "/../beside",
		"0::/gone (deleted)\n":         "/gone (deleted)",
		"1:name=systemd:/user.slice\n": "",
		"":                             "",
		"10::/no\n":                    "",
	} {
		if got, ok := ParseOwn(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, ok, want)
		}
	}
}
