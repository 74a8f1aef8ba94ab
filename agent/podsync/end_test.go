package podsync

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// A process that the runtime has lost is killed, so that its pod can end.
func TestLostProcessesAreKilled(t *testing.T) {
	root := t.TempDir()
	group := filepath.Join(root, "kubepods", "pod1")
	lost := filepath.Join(group, "container", "cgroup.procs") // keeps its folder, as a process does
	kill := filepath.Join(group, "cgroup.kill")
	if err := os.MkdirAll(filepath.Dir(lost), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(root, "cgroup.controllers"), lost, kill} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Cgroups: tree, Log: slog.New(slog.DiscardHandler)})
	if err := s.dropCgroup(pod.Ref{}, "kubepods/pod1"); !errors.Is(err, cgroups.ErrBusy) {
		t.Errorf("a group with a process in it: %v", err)
	}
	if got, err := os.ReadFile(kill); err != nil || string(got) != "1" {
		t.Errorf("cgroup.kill has %q, %v", got, err)
	}
	if err := errors.Join(os.Remove(lost), os.Remove(kill)); err != nil {
		t.Fatal(err)
	}
	if err := s.dropCgroup(pod.Ref{}, "kubepods/pod1"); err != nil {
		t.Errorf("once it is dead: %v", err)
	}
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("the group: %v", err)
	}
}
