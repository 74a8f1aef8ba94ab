package syncloop

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/pleg"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/source"
)

// recorder is a Syncer that only records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) note(what string, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, what+" "+string(uid))
}

func (r *recorder) has(call string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.calls, call)
}

func (r *recorder) OnPodAdded(*v1.Pod)         {}
func (r *recorder) OnPodRemoved(pod.Ref)       {}
func (r *recorder) OnPodsDiscovered([]pod.Ref) {}
func (r *recorder) Sync(_ context.Context, p *v1.Pod) (podworker.Result, error) {
	r.note("sync", p.UID)
	return podworker.Result{}, nil
}
func (r *recorder) Terminate(_ context.Context, ref pod.Ref, _ *v1.Pod, _ time.Duration) error {
	r.note("terminate", ref.UID)
	return nil
}
func (r *recorder) Finish(context.Context, pod.Ref, *v1.Pod) error { return nil }
func (r *recorder) Forget(_ context.Context, ref pod.Ref) error {
	r.note("forget", ref.UID)
	return nil
}

// rig is a loop whose channels the test controls.
type rig struct {
	*recorder
	loop      *Loop
	updates   chan source.Update
	changes   chan types.UID
	snapshots chan []pleg.Pod
	leftovers []types.UID
	ready     bool
	stop      context.CancelFunc
	done      chan error
}

func newRig(t *testing.T) *rig {
	r := &rig{
		recorder: &recorder{}, updates: make(chan source.Update), changes: make(chan types.UID),
		snapshots: make(chan []pleg.Pod), done: make(chan error, 1),
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	r.loop = New(Config{
		Updates: r.updates, MarkSeen: func(string) { r.ready = true }, Ready: func() bool { return r.ready },
		Changes: r.changes, Snapshots: r.snapshots, OnStatusReconciled: func(*v1.Pod) {},
		Workers: podworker.NewWorkers(podworker.Config{
			Syncer: r.recorder, Wakeups: podworker.NewWakeups(), OnTerminated: func(types.UID) {}, Log: log,
		}),
		ListOrphans: func() ([]types.UID, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.leftovers, nil
		}, Log: log,
	})
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { r.done <- r.loop.Run(ctx) }()
	return r
}

// leave says what lies on disk.
func (r *rig) leave(uids ...types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftovers = uids
}

func (r *rig) end(t *testing.T) {
	r.stop()
	if err := <-r.done; !errors.Is(err, context.Canceled) {
		t.Errorf("the loop ended with %v", err)
	}
}

func named(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: "p-" + uid, Namespace: "default"}}
}

// An ADD of the same set follows a REMOVE of a source that is not ready yet. It may have the
// pods that run.
func TestRemoveMakesNoSourceReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.snapshots <- []pleg.Pod{{Ref: pod.RefOf(named("x")), GracePeriod: -1}}
		r.updates <- source.Update{Op: source.ADD, Source: "file", Pods: []*v1.Pod{named("old")}, Partial: true}
		r.updates <- source.Update{Op: source.REMOVE, Source: "file", Pods: []*v1.Pod{named("old")}}
		synctest.Wait()
		r.updates <- source.Update{Op: source.ADD, Source: "file", Pods: []*v1.Pod{named("new"), named("x")}}
		synctest.Wait()
		if r.has("terminate x") || !r.has("sync x") || !r.ready {
			t.Errorf("ready %v, calls %v", r.ready, r.calls)
		}
		r.end(t)
	})
}

// A status that the agent has reported comes back as a change of status alone,
// and triggers no sync, except for pods with readiness gates: those wait for
// conditions that others set.
func TestReconcileIsWorkForReadinessGatesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.snapshots <- nil
		gated := named("gated")
		gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/x"}}
		pods := []*v1.Pod{named("plain"), gated}
		r.updates <- source.Update{Op: source.ADD, Source: "api", Pods: pods}
		synctest.Wait()
		before := len(r.calls)
		r.updates <- source.Update{Op: source.RECONCILE, Source: "api", Pods: pods}
		synctest.Wait()
		if diff := cmp.Diff([]string{"sync gated"}, r.calls[before:]); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		r.end(t)
	})
}

func TestDispatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.leave("disk", "a")
		r.snapshots <- []pleg.Pod{{Ref: pod.Ref{UID: "orphan", Name: "o", Namespace: "default"}, GracePeriod: -1}}
		time.Sleep(time.Hour)
		if r.has("terminate orphan") || r.has("terminate disk") {
			t.Fatal("something was cleaned up before the sources were ready")
		}
		r.updates <- source.Update{Op: source.ADD, Source: "file", Pods: []*v1.Pod{named("a")}}
		synctest.Wait()
		for _, want := range []string{"sync a", "terminate orphan", "forget orphan", "terminate disk", "forget disk"} {
			if !r.has(want) {
				t.Errorf("no %q in %v", want, r.calls)
			}
		}
		if r.has("terminate a") {
			t.Error("the folder of a wanted pod was taken for a leftover")
		}
		before := len(r.calls)
		r.changes <- "a"
		r.changes <- "nobody"
		synctest.Wait()
		if len(r.calls) != before+1 {
			t.Errorf("a change of a known and of an unknown pod made %v", r.calls[before:])
		}
		r.updates <- source.Update{Op: source.REMOVE, Source: "file", Pods: []*v1.Pod{named("a")}}
		r.updates <- source.Update{Op: "UNKNOWN", Source: "file", Pods: []*v1.Pod{named("x")}}
		synctest.Wait()
		if !r.has("forget a") || r.has("sync x") {
			t.Errorf("calls: %v", r.calls)
		}
		// Housekeeping finds what appears on disk later.
		r.leave("late")
		time.Sleep(2 * housekeepingPeriod)
		synctest.Wait()
		if !r.has("forget late") {
			t.Errorf("calls: %v", r.calls)
		}
		r.end(t)
	})
}

func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.loop.Alive(ctx); err != nil {
			t.Errorf("a loop that runs: %v", err)
		}
		r.end(t)
		if err := r.loop.Alive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a loop that does not: %v", err)
		}
	})
}

// TestDiskHangs has a listing of orphaned data that does not return: the loop
// continues, begins no second listing, and processes the result when it arrives.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		answers, listings := make(chan []types.UID), 0
		r.loop.cfg.ListOrphans = func() ([]types.UID, error) { listings++; return <-answers, nil }
		r.snapshots <- nil
		r.updates <- source.Update{Op: source.ADD, Source: "file", Pods: []*v1.Pod{named("a")}}
		for range 3 {
			time.Sleep(housekeepingPeriod)
			if err := r.loop.Alive(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r.updates <- source.Update{Op: source.ADD, Source: "file", Pods: []*v1.Pod{named("b")}}
		synctest.Wait()
		if !r.has("sync b") || listings != 1 {
			t.Errorf("%d listings, calls %v", listings, r.calls)
		}
		answers <- []types.UID{"disk", "a", "b"}
		synctest.Wait()
		if !r.has("forget disk") || r.has("terminate a") || r.has("terminate b") {
			t.Errorf("after the answer: %v", r.calls)
		}
		r.end(t)
	})
}

// TestBusyLoopIsAlive has a loop that does not serve Alive, since it is always
// busy, and then one that is stuck in a pod.
func TestBusyLoopIsAlive(t *testing.T) {
	for name, busy := range map[string]bool{"busy": true, "stuck": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Config{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				go func() {
					if time.Sleep(time.Second / 2); busy {
						l.steps.Add(1)
					}
				}()
				if err := l.Alive(ctx); (err == nil) != busy {
					t.Error(err)
				}
			})
		})
	}
}
