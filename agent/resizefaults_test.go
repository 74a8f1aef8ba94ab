package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/source"
)

// Two resizes that the disk does not take do not wake each other without end.
func TestTwoResizesOnAFullDisk(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		var wakes atomic.Int64
		set := l.prepare
		l.prepare = func(p *agent) {
			set(p)
			wake := p.syncer.Wake
			p.syncer.Wake = func(uid types.UID) {
				if wakes.Add(1) < 500 { // else the test would not end
					wake(uid)
				}
			}
		}
		web, other := sized(t, "web", "250m", "64Mi"), sized(t, "other", "250m", "64Mi")
		l.begin(web, other)
		record := filepath.Join(l.cfg.Paths.Root, "tinylet", "allocations.new")
		if err := os.MkdirAll(filepath.Join(record, "full"), 0o755); err != nil { // a folder where the file has to be
			t.Fatal(err)
		}
		wakes.Store(0)
		web, other = grown(web, "300m", "64Mi"), grown(other, "300m", "64Mi")
		l.ask(web, other)
		l.settle(time.Minute)
		if n := wakes.Load(); n > 20 {
			t.Errorf("%d wakeups in a minute", n)
		}
		if err := os.RemoveAll(record); err != nil {
			t.Fatal(err)
		}
		l.settle(time.Minute)
		for _, p := range []*v1.Pod{web, other} {
			l.resizedTo(p, "300m/300m 64Mi/64Mi of 300m 64Mi", 0)
		}
	})
}

// A pod that is wanted again before it was gone can be resized in its new life.
func TestResizeOfAPodThatCameBack(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.begin(web)
		remove := l.runtime.Inject("StopContainer", fake.Fault{Delay: 10 * time.Second})
		l.ask()
		l.ask(web)
		l.settle(time.Minute)
		remove()
		web = grown(web, "500m", "128Mi")
		l.ask(web)
		l.settle(time.Minute)
		if got, want := l.has(web), "500m 512 128Mi"; got != want {
			t.Errorf("has %s, want %s", got, want)
		}
		other := sized(t, "other", "600m", "64Mi") // for which there is no room beside it
		l.ask(web, other)
		if phase := l.status(other.UID).Phase; phase != v1.PodFailed {
			t.Errorf("a pod too much is %s", phase)
		}
	})
}

// A resize that waits over a restart of the agent goes on waiting from when it
// began, and is not told of again, also where the journal has the pod before
// the API server does.
func TestDeferredOverARestartWithAJournal(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		dir := t.TempDir()
		web := sized(t, "web", "250m", "64Mi")
		web.ResourceVersion = "1"
		l.join(dir)
		l.settle(time.Second)
		l.ask(web)
		web = grown(web, "3", "64Mi")
		web.ResourceVersion = "2"
		l.ask(web)
		want := fmt.Sprintf("PodResizePending=Deferred@%d", web.Generation)
		if got := l.conditions(web); got != want {
			t.Errorf("conditions %s, want %s", got, want)
		}
		since := l.status(web.UID).Conditions
		web = web.DeepCopy()
		web.Status, web.ResourceVersion = l.status(web.UID), "3"
		l.leave()
		l.settle(time.Minute)
		l.api, l.wanted = false, nil
		l.join(dir)
		set := func(from string, w source.PodSet) {
			l.done.Go(func() { l.agent.mux.Set(t.Context(), from, w) })
			l.settle(time.Second)
		}
		set(pod.SourceRestore, source.PodSet{Pods: l.agent.cluster.journal.Pods()})
		set(pod.SourceAPI, source.PodSet{Replaces: pod.SourceRestore, Pods: []*v1.Pod{web}})
		l.settle(10 * time.Second)
		if got := l.conditions(web); got != want {
			t.Errorf("conditions after the restart %s, want %s", got, want)
		}
		only := func(all []v1.PodCondition) (c []v1.PodCondition) {
			for i := range all {
				if all[i].Type == v1.PodResizePending {
					all[i].LastTransitionTime = metav1.NewTime(all[i].LastTransitionTime.UTC())
					c = append(c, all[i])
				}
			}
			return c
		}
		if diff := cmp.Diff(only(since), only(l.status(web.UID).Conditions)); diff != "" {
			t.Errorf("conditions (-before the restart +after):\n%s", diff)
		}
		if got := l.told(web); got != "" {
			t.Errorf("events after the restart: %s", got)
		}
		l.leave()
	})
}

// Conditions of a resize that came to its end while no agent was there, of
// which nothing is on record, do not stay.
func TestConditionsOfAResizeThatIsOver(t *testing.T) {
	for _, kind := range []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress} {
		t.Run(string(kind), func(t *testing.T) {
			sizing(t, func(t *testing.T, l *sizes) {
				web := sized(t, "web", "250m", "64Mi")
				l.begin(web)
				l.kill()
				web = web.DeepCopy()
				web.Status = l.status(web.UID)
				web.Status.Conditions = append(web.Status.Conditions, v1.PodCondition{
					Type: kind, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, ObservedGeneration: web.Generation,
				})
				l.begin(web)
				l.resizedTo(web, "250m/250m 64Mi/64Mi of 250m 64Mi", 0)
			})
		})
	}
}

// An update has all that the container has, as the runtime may set it anew.
func TestAResizeHasTheCPUs(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T, l *lab) {
		fourCPUs(t, l, dir)
		l.api = true
		web, one := sized(t, "web", "250m", "64Mi"), alone(t, "one", "1")
		web.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("32Mi") // Burstable
		l.want(web, one)
		l.start()
		l.settle(10 * time.Second)
		last := ""
		l.agent.syncer.Runtime = watched{l.runtime, func(r *runtimeapi.LinuxContainerResources) { last = r.GetCpusetCpus() }}
		web = grown(web, "300m", "64Mi")
		web.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("32Mi")
		l.want(web, one)
		l.settle(10 * time.Second)
		if last != "0,2-3" {
			t.Errorf("the update has the CPUs %q", last)
		}
	})
}

// watched is a runtime whose updates are looked at.
type watched struct {
	*fake.Runtime
	update func(*runtimeapi.LinuxContainerResources)
}

func (w watched) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	w.update(r)
	return w.Runtime.UpdateContainerResources(ctx, id, r)
}

// While the runtime refuses a resize, a container that ends is seen at once.
func TestAContainerEndsWhileAResizeFails(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web := sized(t, "web", "250m", "64Mi")
		l.begin(web)
		l.runtime.Inject("UpdateContainerResources", fake.Fault{Err: errors.New("no")})
		l.ask(grown(web, "500m", "64Mi"))
		l.settle(10 * time.Minute)
		if n := l.runtime.Count("UpdateContainerResources"); n < 20 || n > 60 {
			t.Errorf("tried %d times in ten minutes", n)
		}
		old := l.running()[web.Name+"/c0"]
		l.runtime.ExitContainer(old, 1)
		l.settle(time.Second)
		if got := l.running()[web.Name+"/c0"]; got == old || got == "" {
			t.Error("the container was not started again within a second")
		}
		if got, want := l.has(web), "500m 512 64Mi"; got != want {
			t.Errorf("has %s, want %s", got, want)
		}
	})
}

// metricsOf are the samples of resizes, without the kubelet's prefix and what
// depends on the time.
func (l *sizes) metricsOf() string {
	l.t.Helper()
	var text strings.Builder
	out := metrics.NewStream(&text)
	l.agent.syncer.WriteMetrics(out)
	if err := out.Flush(); err != nil {
		l.t.Fatal(err)
	}
	var known []string // upstream's own name
	if strings.Contains(text.String(), "milliseconds") {
		known = append(known, "kubelet_pod_resize_duration_milliseconds: has a unit that is abbreviated or not a base unit")
	}
	if problems := metricstest.Problems([]byte(text.String()), known...); len(problems) > 0 {
		l.t.Errorf("%q in\n%s", problems, text.String())
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		line, ours := strings.CutPrefix(strings.TrimSpace(line), "kubelet_")
		if ours && strings.Contains(line, "resize") && !strings.Contains(line, "_bucket") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestMetricsOfResizes(t *testing.T) {
	sizing(t, func(t *testing.T, l *sizes) {
		web, other := sized(t, "web", "250m", "64Mi"), sized(t, "other", "500m", "64Mi")
		l.begin(web, other)
		if got, want := l.metricsOf(), "pod_in_progress_resizes 0"; got != want {
			t.Errorf("before any:\n%s", got)
		}
		web = grown(web, "600m", "128Mi")
		l.ask(web, other)
		const asked = `container_requested_resizes_total{operation="increase",requirement="limits",resource="cpu"} 1
container_requested_resizes_total{operation="increase",requirement="limits",resource="memory"} 1
container_requested_resizes_total{operation="increase",requirement="requests",resource="cpu"} 1
container_requested_resizes_total{operation="increase",requirement="requests",resource="memory"} 1
`
		want := asked + `pod_pending_resizes{reason="deferred"} 1
pod_in_progress_resizes 0`
		if diff := cmp.Diff(want, l.metricsOf()); diff != "" {
			t.Errorf("deferred (-want +got):\n%s", diff)
		}
		remove := l.runtime.Inject("UpdateContainerResources", fake.Fault{Err: errors.New("no"), Times: 1, Delay: time.Second})
		l.ask(web)
		remove()
		l.settle(time.Minute)
		l.agent.syncer.Resizable = resize.Features{StaticCPU: true}
		l.ask(grown(web, "500m", "128Mi"))
		want = `container_requested_resizes_total{operation="decrease",requirement="limits",resource="cpu"} 1
container_requested_resizes_total{operation="decrease",requirement="requests",resource="cpu"} 1
` + asked + `pod_pending_resizes{reason="infeasible"} 1
pod_in_progress_resizes 0
pod_infeasible_resizes_total{reason_detail="guaranteed_pod_cpu_manager_static_policy"} 1
pod_deferred_accepted_resizes_total{retry_trigger="pods_removed"} 1
pod_resize_duration_milliseconds_sum{success="false"} 1000
pod_resize_duration_milliseconds_count{success="false"} 1
pod_resize_duration_milliseconds_sum{success="true"} 0
pod_resize_duration_milliseconds_count{success="true"} 1`
		if diff := cmp.Diff(want, l.metricsOf()); diff != "" {
			t.Errorf("at the end (-want +got):\n%s", diff)
		}
	})
}
