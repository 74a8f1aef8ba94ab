package podsync

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/fake"
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

// A container that still ran when the runtime was asked, beside the stop of
// its sandbox, is looked at again.
func TestSandboxStoppedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		rt.AddImage("app", fake.Program{})
		sandbox := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "u"},
			Labels:   map[string]string{container.LabelPodUID: "u"},
		}
		id, err := rt.RunPodSandbox(t.Context(), sandbox, "")
		if err != nil {
			t.Fatal(err)
		}
		main, err := rt.CreateContainer(t.Context(), id, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "app"},
			Labels: map[string]string{container.LabelPodUID: "u"}, Command: []string{"sleep", "100000"},
		}, sandbox)
		if err = errors.Join(err, rt.StartContainer(t.Context(), main)); err != nil {
			t.Fatal(err)
		}
		slow := rt.Inject("StopPodSandbox", fake.Fault{Delay: time.Second})
		s := New(Config{Runtime: rt, Log: slog.New(slog.DiscardHandler)})
		o, err := s.stopSandboxes(t.Context(), pod.Ref{UID: "u"}, []string{id})
		if err != nil || o.Running() || len(o.Containers) != 1 || o.Containers[0].State != container.StateExited {
			t.Errorf("%+v, %v", o, err)
		}
		if n := rt.Count("ListContainers"); n != 2 {
			t.Errorf("%d looks, want one beside the stop and one after it", n)
		}
		if _, err := s.stopSandboxes(t.Context(), pod.Ref{UID: "u"}, []string{id}); err != nil || rt.Count("ListContainers") != 3 {
			t.Errorf("what has ended before: %v, %d looks in all, want one more", err, rt.Count("ListContainers"))
		}
		slow()
		rt.Inject("StopPodSandbox", fake.Fault{Err: os.ErrDeadlineExceeded})
		if _, err := s.stopSandboxes(t.Context(), pod.Ref{UID: "u"}, []string{id}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a stop that fails: %v", err)
		}
	})
}
