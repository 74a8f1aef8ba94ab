package resize_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

func TestDecide(t *testing.T) {
	small, large := asks("500m", "128Mi", "1", "256Mi"), asks("1", "128Mi", "1", "256Mi")
	full, fuller := asks("500m", "128Mi", "500m", "128Mi"), asks("1", "128Mi", "1", "128Mi")
	fatter := asks("500m", "256Mi", "500m", "256Mi")
	static := resize.Features{StaticCPU: true}
	swap := resize.Features{LimitedSwap: true}
	infeasible := func(cause, message string) resize.Decision {
		return resize.Decision{Outcome: resize.Infeasible, Reason: "Infeasible", Cause: cause, Message: message}
	}
	noSwap := infeasible("swap_limitation", "In-place resize of containers with swap is not supported.")
	for _, row := range []struct {
		name      string
		was, pod  *v1.Pod
		features  resize.Features
		others    []*v1.Pod
		want      resize.Decision
		unchecked bool // the node is not asked for room
	}{
		{name: "nothing", was: newPod(app("main", small)), pod: newPod(app("main", small)), unchecked: true},
		{name: "best effort", was: newPod(app("main", asks("", "", "", ""))), pod: newPod(app("main", asks("", "", "", ""))), unchecked: true},
		{
			name: "grows", was: newPod(app("main", small)), pod: newPod(app("main", large)),
			want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "shrinks", was: newPod(app("main", large)), pod: newPod(app("main", small)),
			others: []*v1.Pod{other("other", "1500m", "")}, want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "limits only", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "128Mi", "9", "9Gi"))),
			want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "no room now", was: newPod(app("main", small)), pod: newPod(app("main", large)),
			others: []*v1.Pod{other("other", "1500m", "")},
			want: resize.Decision{
				Outcome: resize.Deferred, Reason: "OutOfcpu",
				Message: "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
			},
		},
		{
			name: "one grows, one shrinks", was: newPod(app("a", small), app("b", large)), pod: newPod(app("a", large), app("b", small)),
			others: []*v1.Pod{other("other", "500m", "")}, want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "more than the node has", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "2Gi", "1", "2Gi"))),
			want: resize.Decision{
				Outcome: resize.Deferred, Reason: "OutOfmemory",
				Message: "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
			},
		},
		{
			name: "pod-level", was: newPod(whole(small), app("main", v1.ResourceRequirements{})), pod: newPod(whole(large), app("main", v1.ResourceRequirements{})),
			others: []*v1.Pod{other("other", "1500m", "")},
			want: resize.Decision{
				Outcome: resize.Deferred, Reason: "OutOfcpu",
				Message: "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
			},
		},
		{
			name: "a sidecar", was: newPod(sidecar("proxy", small), app("main", small)), pod: newPod(sidecar("proxy", large), app("main", small)),
			want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "critical", was: newPod(app("main", small), prio(pod.SystemCriticalPriority)), pod: newPod(app("main", large), prio(pod.SystemCriticalPriority)),
			others: []*v1.Pod{other("other", "1500m", "")},
			want:   resize.Decision{Outcome: resize.Allocate, Preempt: []types.UID{"uid-of-another"}},
		},
		{name: "static", was: newPod(app("main", small)), pod: newPod(app("main", large), source(pod.SourceFile)), unchecked: true},
		{name: "ended", was: newPod(app("main", small)), pod: newPod(app("main", large), phase(v1.PodFailed)), unchecked: true},
		{
			name: "exclusive CPUs", was: newPod(app("main", full)), pod: newPod(app("main", fuller)), features: static, unchecked: true,
			want: infeasible("guaranteed_pod_cpu_manager_static_policy", `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`),
		},
		{
			name: "memory beside exclusive CPUs", was: newPod(app("main", full)), pod: newPod(app("main", fatter)), features: static,
			want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "burstable beside exclusive CPUs", was: newPod(app("main", small)), pod: newPod(app("main", large)), features: static,
			want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "swap", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "192Mi", "1", "256Mi"))), features: swap, unchecked: true,
			want: noSwap,
		},
		{
			name: "swap before alone", was: newPod(app("main", small)), pod: newPod(app("main", asks("500m", "256Mi", "1", "256Mi"))), features: swap, unchecked: true,
			want: noSwap,
		},
		{
			name: "swap and a restart", was: newPod(app("main", small)),
			pod: newPod(app("main", asks("500m", "192Mi", "1", "256Mi"), v1.ResourceMemory)), features: swap,
			want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "swap and cpu", was: newPod(app("main", small)), pod: newPod(app("main", large)), features: swap,
			want: resize.Decision{Outcome: resize.Allocate},
		},
		{
			name: "no swap for a guaranteed pod", was: newPod(app("main", full)), pod: newPod(app("main", fatter)), features: swap,
			want: resize.Decision{Outcome: resize.Allocate},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			asked, fits := false, room(t, row.others...)
			got := resize.Decide(row.pod, resize.FromSpec(row.was), row.features, func(p *v1.Pod) resize.Fit {
				asked = true
				return fits(p)
			})
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			if asked == row.unchecked {
				t.Errorf("asked for room: %v", asked)
			}
		})
	}
}

// A resize without room gets it once another pod has actually shrunk.
func TestDeferredThenFeasible(t *testing.T) {
	was, wants := newPod(app("main", asks("500m", "", "", ""))), newPod(app("main", asks("1", "", "", "")))
	neighbour := other("other", "500m", "")
	neighbour.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Resources: new(asks("1500m", "", "", ""))}}
	if d := resize.Decide(wants, resize.FromSpec(was), resize.Features{}, room(t, neighbour)); d.Outcome != resize.Deferred {
		t.Fatalf("got %s while the other still runs with what it had", d.Outcome)
	}
	neighbour.Status.ContainerStatuses[0].Resources = new(asks("500m", "", "", ""))
	if d := resize.Decide(wants, resize.FromSpec(was), resize.Features{}, room(t, neighbour)); d.Outcome != resize.Allocate {
		t.Fatalf("got %s", d.Outcome)
	}
}
