package podsync

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// oneCPU is a node with room for one pod that requests a CPU.
func oneCPU() *nodeinfo.Admission {
	return &nodeinfo.Admission{
		OS: "linux", MaxPods: 1, Unconfirmed: true,
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")},
	}
}

// A pod that is terminal in the API server does not take the room of another one,
// unless it runs. The status in a manifest is ignored.
func TestTerminalPodsTakeNoRoom(t *testing.T) {
	for _, row := range []struct {
		name            string
		phase           v1.PodPhase
		static, running bool
		admitted        bool
	}{
		{"succeeded", v1.PodSucceeded, false, false, true},
		{"failed", v1.PodFailed, false, false, true},
		{"pending", v1.PodPending, false, false, false},
		{"runs", v1.PodSucceeded, false, true, false},
		{"in a manifest", v1.PodSucceeded, true, false, false},
	} {
		for _, when := range []string{"before the start", "after the start", "synced"} {
			t.Run(row.name+" "+when, func(t *testing.T) {
				a := &New(quiet(t.TempDir(), Config{})).admission
				old, next := burstable("old", "1", "1Mi"), burstable("next", "1", "1Mi")
				old.Status.Phase = row.phase
				if row.static {
					old.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
				}
				var running []pod.Ref
				if row.running {
					running = []pod.Ref{pod.RefOf(old)}
				}
				a.submit(old, oneCPU())
				if when != "before the start" {
					a.adopt(running, oneCPU())
				}
				if when == "synced" {
					a.begin(old.UID)
				}
				a.submit(next, oneCPU())
				a.adopt(running, oneCPU())
				if _, r, ok := a.result(next.UID); !ok || (r == nil) != row.admitted {
					t.Errorf("rejection %+v, want admitted %v", r, row.admitted)
				}
			})
		}
	}
}

// A pod that is terminal in the API server is not decided again: it gets no event and
// keeps its status.
func TestTerminalPodsAreNotRejected(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(p *v1.Pod, s *Syncer)
	}{
		{"too large", func(*v1.Pod, *Syncer) {}},
		{"unsupported", func(p *v1.Pod, _ *Syncer) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}} }},
		{"the node shuts down", func(_ *v1.Pod, s *Syncer) { s.ShuttingDown = func() bool { return true } }},
	} {
		t.Run(row.name, func(t *testing.T) {
			events := event.NewRecorder(slog.New(slog.DiscardHandler))
			s := New(quiet(t.TempDir(), Config{
				Runtime: fake.New(fake.Config{}), Statuses: podstatus.NewStore(), Events: events, AdmitNode: oneCPU,
				HostIPs: func() []string { return nil }, RecursiveReadOnly: func(string) bool { return false },
				Probes: probe.New(probe.Config{}), Log: slog.New(slog.DiscardHandler),
			}))
			p := burstable("ended", "2", "1Mi")
			p.Status.Phase = v1.PodSucceeded
			row.change(p, s)
			s.OnPodsDiscovered(nil)
			s.OnPodAdded(p)
			result, err := s.Sync(t.Context(), p)
			if err != nil || !result.Done {
				t.Errorf("%+v, %v", result, err)
			}
			if got := events.Recent(); len(got) > 0 {
				t.Errorf("events %+v", got)
			}
			if _, st, _ := s.Statuses.Get(p.UID); st.Phase != v1.PodSucceeded || st.Reason != "" {
				t.Errorf("status %s %s", st.Phase, st.Reason)
			}
		})
	}
}

// An eviction of a pod that is forgotten has no effect on a later pod of its UID.
func TestEvictionOfAnUnknownPod(t *testing.T) {
	s := New(Config{Wake: func(types.UID) {}})
	if s.EvictWith("unknown", &Eviction{}); len(s.states) > 0 {
		t.Errorf("states %v", s.states)
	}
}

// A rehearsal counts no eviction and wakes no pod.
func TestRehearsedEviction(t *testing.T) {
	s := New(Config{
		Wake:     func(uid types.UID) { t.Errorf("woken %s", uid) },
		PeekNode: func() (*criconfig.Node, bool) { return nil, false },
	})
	(&Evictable{Syncer: s}).Rehearse(policy.Eviction{Signal: "memory.available", Grace: time.Second})
	if len(s.states) > 0 {
		t.Errorf("states %v", s.states)
	}
	var out strings.Builder
	stream := metrics.NewStream(&out)
	s.WriteMetrics(stream)
	if err := stream.Flush(); err != nil || strings.Contains(out.String(), "eviction_signal") {
		t.Errorf("%v, metrics %s", err, &out)
	}
}
