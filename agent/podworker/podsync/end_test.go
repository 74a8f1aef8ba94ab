package podsync

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// An orphaned process is killed, so that its pod can end.
func TestLostProcessesAreKilled(t *testing.T) {
	root := t.TempDir()
	group := filepath.Join(root, "kubepods", "pod1")
	container := filepath.Join(group, "container")
	kill := filepath.Join(group, "cgroup.kill")
	if err := os.MkdirAll(container, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "cgroup.controllers"), "")
	write(kill, "")
	populated := func(value string) {
		for _, dir := range []string{group, container} {
			write(filepath.Join(dir, "cgroup.events"), "populated "+value+"\n")
		}
	}
	populated("1")
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	s, f := New(Config{Cgroups: tree, Log: slog.New(slog.DiscardHandler)}), &syncState{}
	if err := s.dropCgroup(pod.Ref{}, "kubepods/pod1", f); !errors.Is(err, cgroups.ErrBusy) {
		t.Errorf("a group with a process in it: %v", err)
	}
	if got, err := os.ReadFile(kill); err != nil || string(got) != "1" {
		t.Errorf("cgroup.kill has %q, %v", got, err)
	}
	if f.cleanupAttempts != maxCleanupAttempts {
		t.Errorf("%d tries are left to take away what else there is", f.cleanupAttempts)
	}
	populated("0")
	if err := s.dropCgroup(pod.Ref{}, "kubepods/pod1", f); err != nil {
		t.Errorf("once it is dead: %v", err)
	}
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("the group: %v", err)
	}
	var out strings.Builder
	stream := metrics.NewStream(&out)
	s.WriteMetrics(stream)
	if err := stream.Flush(); err != nil || !strings.Contains(out.String(), `kubelet_cgroup_manager_duration_seconds_count{operation_type="destroy"} 2`) {
		t.Errorf("both are counted in\n%s, %v", &out, err)
	}
}

// Kill kills all processes in the pod's cgroup, whichever QoS class it has;
// those of other pods keep running.
func TestKill(t *testing.T) {
	root := t.TempDir()
	files := map[string]string{ // by group, what it says then
		"kubepods/pod1": "", "kubepods/besteffort/pod1": "", "kubepods/burstable/pod2": "1", "kubepods/burstable": "",
	}
	for group := range files {
		if err := os.MkdirAll(filepath.Join(root, group), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, group, "cgroup.kill"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	known := false
	peek := func() (*criconfig.Node, bool) { return &criconfig.Node{CgroupDriver: criconfig.DriverCgroupfs}, known }
	s := New(Config{Cgroups: tree, PeekNode: peek, Log: slog.New(slog.DiscardHandler)})
	if err := s.KillProcesses("2"); err != nil {
		t.Errorf("before the runtime has told how groups are named: %v", err)
	}
	known = true
	if err := errors.Join(s.KillProcesses("2"), s.KillProcesses("gone"), New(Config{PeekNode: peek}).KillProcesses("1")); err != nil {
		t.Error(err)
	}
	for group, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, group, "cgroup.kill")); err != nil || string(got) != want {
			t.Errorf("%s: cgroup.kill has %q, %v", group, got, err)
		}
	}
	if err := os.Remove(filepath.Join(root, "kubepods/pod1/cgroup.kill")); err != nil {
		t.Fatal(err)
	}
	if err := s.KillProcesses("1"); err == nil || !strings.Contains(err.Error(), "5.14") {
		t.Errorf("a kernel without cgroup.kill: %v", err)
	}
}

// Created and updated cgroups are counted separately.
func TestCgroupsAreCounted(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"cgroup.controllers", "cgroup.subtree_control"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Cgroups: tree})
	for range 3 {
		_ = s.ensureCgroup("kubepods", cgroups.Resources{}) // a plain folder has none of the kernel's files
	}
	var out strings.Builder
	stream := metrics.NewStream(&out)
	s.WriteMetrics(stream)
	if err := stream.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`_count{operation_type="create"} 1`, `_count{operation_type="update"} 2`} {
		if !strings.Contains(out.String(), "kubelet_cgroup_manager_duration_seconds"+want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

// A container that still ran when it was observed, concurrently with the stop
// of its sandbox, is observed again.
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

// below reports one leaked container for each of its results.
type below struct {
	answers []error
	asked   []types.UID
}

func (b *below) RemoveOrphans(_ context.Context, uid types.UID) (int, error) {
	b.asked = append(b.asked, uid)
	err := b.answers[len(b.asked)-1]
	return 1, err
}

// The runtime's records of an orphaned process are removed, and do not keep a
// pod from finishing for ever.
func TestLeftoversAreRemoved(t *testing.T) {
	busy := errors.New("busy")
	for _, tc := range []struct {
		name    string
		slipped int
		answers []error
		want    []bool // whether a call fails
	}{
		{name: "no process was lost", want: []bool{false}},
		{name: "gone at once", slipped: maxCleanupAttempts, answers: []error{nil}, want: []bool{false, false}},
		{name: "gone with the second try", slipped: maxCleanupAttempts, answers: []error{busy, nil}, want: []bool{true, false, false}},
		{name: "never", slipped: maxCleanupAttempts, answers: []error{busy, busy, busy}, want: []bool{true, true, false, false}},
		{name: "another runtime", slipped: maxCleanupAttempts, answers: []error{container.ErrUnsupported}, want: []bool{false, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &below{answers: tc.answers}
			s, f := New(Config{NativeAPI: b, Log: slog.New(slog.DiscardHandler)}), &syncState{cleanupAttempts: tc.slipped}
			for i, fails := range tc.want {
				if err := s.removeLeaked(t.Context(), pod.Ref{UID: "u"}, f); (err != nil) != fails {
					t.Errorf("call %d: %v", i+1, err)
				}
			}
			if len(b.asked) != len(tc.answers) {
				t.Errorf("asked %d times, want %d", len(b.asked), len(tc.answers))
			}
		})
	}
}

// A container that no longer serves while it ends is reported as unready before it has
// ended.
func TestUnreadyWhileTerminating(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		p := podOn(func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"serves"}}},
				PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1,
			}
		})
		ctx, cancel := context.WithCancel(b.t.Context())
		ended := make(chan error, 2)
		go func() { ended <- b.Probes.Run(ctx) }()
		b.rt.SetExec("serves", fake.Exec{})
		b.runs(p)
		time.Sleep(time.Second)
		b.syncs(p)
		if !b.isReady(p) {
			t.Fatal("the container is not ready before it ends")
		}
		b.rt.Inject("StopContainer", fake.Fault{Delay: time.Minute})
		b.rt.SetExec("serves", fake.Exec{Code: 1})
		go func() { ended <- b.Terminate(ctx, pod.RefOf(p), p, 10*time.Minute) }()
		time.Sleep(30 * time.Second)
		if b.isReady(p) {
			t.Error("it is ready while it no longer serves")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
		<-ended
	})
}
