package cgroups

import (
	"errors"
	"os/exec"
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
