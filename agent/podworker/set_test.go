package podworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
)

// fakeSyncer behaves like a runtime that needs a second for each step, and
// records the calls.
type fakeSyncer struct {
	mu      sync.Mutex
	calls   []string
	running map[string]types.UID // full name -> UID
	fail    map[string]int       // step -> how often it still fails
	done    map[types.UID]bool
	busy    map[types.UID]bool
	faults  []string
	hang    map[types.UID]bool // Sync blocks until cancelled
}

func newFakeSyncer() *fakeSyncer {
	return &fakeSyncer{
		running: map[string]types.UID{}, fail: map[string]int{}, done: map[types.UID]bool{},
		busy: map[types.UID]bool{}, hang: map[types.UID]bool{},
	}
}

func (f *fakeSyncer) enter(step string, ref pod.Ref, note string) (leave func(), fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", step, ref.UID, note)))
	if f.busy[ref.UID] {
		f.faults = append(f.faults, fmt.Sprintf("%s of %s while another step runs", step, ref.UID))
	}
	f.busy[ref.UID] = true
	if f.fail[step] > 0 {
		f.fail[step]--
		fails = true
	}
	return func() {
		f.mu.Lock()
		f.busy[ref.UID] = false
		f.mu.Unlock()
	}, fails
}

func (f *fakeSyncer) OnPodAdded(*v1.Pod)         {}
func (f *fakeSyncer) OnPodRemoved(pod.Ref)       {}
func (f *fakeSyncer) OnPodsDiscovered([]pod.Ref) {}

func (f *fakeSyncer) Sync(ctx context.Context, p *v1.Pod) (Result, error) {
	leave, fails := f.enter("sync", pod.RefOf(p), "")
	defer leave()
	f.mu.Lock()
	name := pod.RefOf(p).FullName()
	if other, ok := f.running[name]; ok && other != p.UID {
		f.faults = append(f.faults, fmt.Sprintf("%s and %s overlap", other, p.UID))
	}
	f.running[name] = p.UID
	hang, done := f.hang[p.UID], f.done[p.UID]
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return Result{}, context.Cause(ctx)
	}
	if err := pause(ctx, time.Second); err != nil {
		return Result{}, err
	}
	if fails {
		return Result{}, errors.New("sync fails by order")
	}
	return Result{Done: done}, nil
}

func (f *fakeSyncer) Terminate(ctx context.Context, ref pod.Ref, _ *v1.Pod, grace time.Duration) error {
	leave, fails := f.enter("terminate", ref, grace.Round(100*time.Millisecond).String())
	defer leave()
	if err := pause(ctx, grace); err != nil {
		return err
	}
	if fails {
		return errors.New("terminate fails by order")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[ref.FullName()] == ref.UID {
		delete(f.running, ref.FullName())
	}
	return nil
}

func (f *fakeSyncer) Finish(_ context.Context, ref pod.Ref, _ *v1.Pod) error {
	leave, fails := f.enter("finish", ref, "")
	defer leave()
	if fails {
		return errors.New("finish fails by order")
	}
	return nil
}

func (f *fakeSyncer) Forget(_ context.Context, ref pod.Ref) error {
	leave, fails := f.enter("forget", ref, "")
	defer leave()
	if fails {
		return errors.New("forget fails by order")
	}
	return nil
}

func (f *fakeSyncer) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.calls
	f.calls = nil
	return out
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func newPod(uid, name string, grace int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: name, Namespace: "default"},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
}

func deleted(p *v1.Pod, grace int64) *v1.Pod {
	p = p.DeepCopy()
	now := metav1.Now()
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	return p
}

// bubble runs a test with virtual time on a set that knows the runtime.
func bubble(t *testing.T, test func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSyncer()
		s := NewWorkers(Config{Syncer: f, Wakeups: NewWakeups(), OnTerminated: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		test(t, ctx, s, f)
		cancel()
		s.Wait()
		for _, fault := range f.faults {
			t.Error(fault)
		}
	})
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantCalls(t *testing.T, f *fakeSyncer, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.take()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func wantState(t *testing.T, s *Workers, uid types.UID, want string) {
	t.Helper()
	got := "unknown"
	if state, ok := s.States()[uid]; ok {
		got = state.String()
	}
	if got != want {
		t.Errorf("state of %s is %s, want %s", uid, got, want)
	}
}

func TestPodLivesAndGoes(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		p := newPod("u1", "web", 5)
		s.UpdatePod(ctx, p)
		settle(2 * time.Second)
		wantState(t, s, "u1", "syncing")
		wantCalls(t, f, "sync u1")
		for range 100 {
			s.Wake("u1")
		}
		settle(5 * time.Second)
		if n := len(f.take()); n < 1 || n > 2 {
			t.Errorf("a hundred wakeups made %d syncs, want one, or two if one had begun", n)
		}
		s.RemovePod(ctx, pod.RefOf(p))
		settle(time.Second)
		wantState(t, s, "u1", "terminating")
		settle(5 * time.Second)
		wantState(t, s, "u1", "unknown")
		wantCalls(t, f, "terminate u1 5s", "finish u1", "forget u1")
	})
}

func TestNothingBeginsBeforeTheRuntimeIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.UpdatePod(ctx, newPod("u1", "web", 5))
		settle(time.Minute)
		wantState(t, s, "u1", "waiting")
		wantCalls(t, f)
		s.AdoptRunning(ctx, nil)
		settle(2 * time.Second)
		wantState(t, s, "u1", "syncing")
	})
}

func TestDoneEndsInTerminatedAndStays(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		f.done["u1"] = true
		p := newPod("u1", "job", 0)
		s.UpdatePod(ctx, p)
		settle(3 * time.Second)
		wantState(t, s, "u1", "terminated")
		wantCalls(t, f, "sync u1", "terminate u1 0s", "finish u1")
		s.UpdatePod(ctx, p)
		s.Wake("u1")
		settle(time.Second)
		wantState(t, s, "u1", "terminated")
		wantCalls(t, f)
		s.RemovePod(ctx, pod.RefOf(p))
		settle(time.Second)
		wantState(t, s, "u1", "unknown")
		wantCalls(t, f, "forget u1")
	})
}

func TestFinishedIsToldOnceAPodIsTerminated(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		told := make(chan string, 10)
		s.cfg.OnTerminated = func(uid types.UID) { told <- string(uid) + " " + s.States()[uid].String() }
		s.AdoptRunning(ctx, nil)
		f.fail["finish"] = 1
		s.UpdatePod(ctx, deleted(newPod("u1", "web", 5), 1))
		settle(time.Minute)
		if len(told) != 1 {
			t.Fatalf("told %d times, want once", len(told))
		}
		if got := <-told; got != "u1 terminated" {
			t.Errorf("told %q", got)
		}
	})
}

func TestTerminationCancelsTheRunningSync(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		f.hang["u1"] = true
		p := newPod("u1", "web", 1)
		s.UpdatePod(ctx, p)
		settle(time.Hour)
		wantCalls(t, f, "sync u1")
		s.RemovePod(ctx, pod.RefOf(p))
		settle(2 * time.Second)
		wantState(t, s, "u1", "unknown")
		wantCalls(t, f, "terminate u1 1s", "finish u1", "forget u1")
	})
}

func TestGraceOnlyShrinks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		p := newPod("u1", "web", 60)
		s.UpdatePod(ctx, p)
		settle(2 * time.Second)
		s.UpdatePod(ctx, deleted(p, 30))
		settle(10 * time.Second)
		s.UpdatePod(ctx, deleted(p, 600)) // longer: ignored
		settle(time.Second)
		s.UpdatePod(ctx, deleted(p, 5)) // shorter: begins again with 5 s
		settle(6 * time.Second)
		wantState(t, s, "u1", "terminated")
		wantCalls(t, f, "sync u1", "terminate u1 30s", "terminate u1 5s", "finish u1")
		s.RemovePod(ctx, pod.RefOf(p))
		settle(time.Second)
		wantState(t, s, "u1", "unknown")
	})
}

func TestGraceIsNotBegunAgainByARetry(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		f.fail["terminate"] = 1
		p := newPod("u1", "web", 10)
		s.UpdatePod(ctx, p)
		settle(2 * time.Second)
		s.RemovePod(ctx, pod.RefOf(p))
		settle(20 * time.Second)
		wantCalls(t, f, "sync u1", "terminate u1 10s", "terminate u1 1s", "finish u1", "forget u1")
	})
}

func TestSameFullNameNeverOverlaps(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		old, renewed, third := newPod("u1", "web", 10), newPod("u2", "web", 10), newPod("u3", "web", 10)
		s.UpdatePod(ctx, old)
		settle(2 * time.Second)
		s.RemovePod(ctx, pod.RefOf(old))
		s.UpdatePod(ctx, renewed)
		s.UpdatePod(ctx, third)
		settle(5 * time.Second)
		wantState(t, s, "u1", "terminating")
		wantState(t, s, "u2", "waiting")
		settle(10 * time.Second)
		wantState(t, s, "u2", "syncing")
		wantState(t, s, "u3", "waiting")
		s.RemovePod(ctx, pod.RefOf(third)) // leaves the middle of the line
		s.RemovePod(ctx, pod.RefOf(renewed))
		settle(30 * time.Second)
		if len(s.States()) != 0 || len(s.names) != 0 {
			t.Errorf("left over: %v %v", s.States(), s.names)
		}
	})
}

func TestSameUIDAgain(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		p := newPod("u1", "web", 10)
		s.UpdatePod(ctx, p)
		settle(2 * time.Second)
		s.RemovePod(ctx, pod.RefOf(p))
		settle(time.Second)
		s.UpdatePod(ctx, p)
		wantState(t, s, "u1", "terminating")
		settle(20 * time.Second)
		wantState(t, s, "u1", "syncing")
		wantCalls(t, f, "sync u1", "terminate u1 10s", "finish u1", "forget u1", "sync u1")
		// Wanted again, then not after all.
		s.RemovePod(ctx, pod.RefOf(p))
		s.UpdatePod(ctx, p)
		s.RemovePod(ctx, pod.RefOf(p))
		settle(20 * time.Second)
		wantState(t, s, "u1", "unknown")
	})
}

// A deletion that follows a resubmission cancels it: no later update would stop the pod.
func TestResubmittedPodIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		p := newPod("u1", "web", 10)
		s.UpdatePod(ctx, p)
		settle(2 * time.Second)
		s.RemovePod(ctx, pod.RefOf(p))
		settle(time.Second)
		s.UpdatePod(ctx, p)
		s.UpdatePod(ctx, deleted(p, 5))
		settle(time.Minute)
		wantState(t, s, "u1", "unknown")
		wantCalls(t, f, "sync u1", "terminate u1 10s", "finish u1", "forget u1")
	})
}

func TestAdoptedPods(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		claimed, orphan := newPod("u1", "web", 10), newPod("u2", "old", 10)
		s.AdoptRunning(ctx, []pleg.Pod{{Ref: pod.RefOf(claimed), GracePeriod: 3 * time.Second}, {Ref: pod.RefOf(orphan), GracePeriod: 3 * time.Second}})
		s.UpdatePod(ctx, newPod("u3", "old", 10)) // must wait for the orphan
		settle(time.Minute)
		wantState(t, s, "u1", "adopted")
		wantState(t, s, "u2", "adopted")
		wantState(t, s, "u3", "waiting")
		wantCalls(t, f)
		s.UpdatePod(ctx, claimed)
		settle(2 * time.Second)
		wantState(t, s, "u1", "syncing")
		wantCalls(t, f, "sync u1")
		refs := s.AdoptedPods()
		if diff := cmp.Diff([]pod.Ref{pod.RefOf(orphan)}, refs); diff != "" {
			t.Errorf("unclaimed (-want +got):\n%s", diff)
		}
		for _, ref := range refs {
			s.RemovePod(ctx, ref)
		}
		settle(5 * time.Second)
		wantState(t, s, "u3", "syncing")
		calls := f.take()
		slices.Sort(calls[2:]) // the name is free: these two are concurrent
		if diff := cmp.Diff([]string{"terminate u2 3s", "finish u2", "forget u2", "sync u3"}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestRetriesBackOffAndAreDeafToTheRuntime(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		f.fail["sync"] = 1000
		s.UpdatePod(ctx, newPod("u1", "web", 0))
		for range 600 { // ten minutes in which the runtime chatters
			settle(time.Second)
			s.Wake("u1")
		}
		n := len(f.take())
		if n < 20 || n > 45 {
			t.Errorf("%d tries in ten minutes, want about one each 20 s", n)
		}
		f.mu.Lock()
		f.fail["sync"] = 0
		f.mu.Unlock()
		settle(time.Minute)
		f.take()
		settle(time.Hour)
		wantCalls(t, f) // healthy and idle: no step at all
		// A failure does not make the pod deaf to its sources.
		f.mu.Lock()
		f.fail["sync"] = 7
		f.mu.Unlock()
		s.Wake("u1")
		settle(20 * time.Second)
		f.take()
		s.UpdatePod(ctx, newPod("u1", "web", 0))
		settle(100 * time.Millisecond)
		wantCalls(t, f, "sync u1")
	})
}

// The failures of syncs do not lengthen the wait after the first failure of a termination.
func TestBackoffBeginsAgainWithAnotherStep(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		s.AdoptRunning(ctx, nil)
		f.fail["sync"], f.fail["terminate"] = 1000, 1
		p := newPod("u1", "web", 0)
		s.UpdatePod(ctx, p)
		settle(10 * time.Minute)
		f.take()
		s.UpdatePod(ctx, deleted(p, 0))
		settle(time.Second)
		wantCalls(t, f, "terminate u1 0s", "terminate u1 0s", "finish u1")
	})
}

func TestEveryStepIsRepeatedUntilItWorks(t *testing.T) {
	for _, step := range []string{"sync", "terminate", "finish", "forget"} {
		t.Run(step, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
				s.AdoptRunning(ctx, nil)
				f.fail[step] = 3
				p := newPod("u1", "web", 0)
				s.UpdatePod(ctx, p)
				settle(time.Minute)
				s.RemovePod(ctx, pod.RefOf(p))
				settle(time.Minute)
				wantState(t, s, "u1", "unknown")
				count := 0
				for _, call := range f.take() {
					if strings.HasPrefix(call, step) {
						count++
					}
				}
				if count != 4 {
					t.Errorf("%s ran %d times, want 3 failures and a success", step, count)
				}
			})
		})
	}
}

func TestNextLooksAgainByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &nextSyncer{fakeSyncer: newFakeSyncer()}
		s := NewWorkers(Config{Syncer: f, Wakeups: NewWakeups(), OnTerminated: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		s.AdoptRunning(ctx, nil)
		s.UpdatePod(ctx, newPod("u1", "web", 0))
		settle(95 * time.Second)
		cancel()
		s.Wait()
		if n := len(f.take()); n != 9 {
			t.Errorf("%d syncs in 95 s, want one each 11 s", n)
		}
	})
}

// nextSyncer requests the next sync ten seconds after each sync.
type nextSyncer struct{ *fakeSyncer }

func (f *nextSyncer) Sync(ctx context.Context, p *v1.Pod) (Result, error) {
	if _, err := f.fakeSyncer.Sync(ctx, p); err != nil {
		return Result{}, err
	}
	return Result{Next: time.Now().Add(10 * time.Second)}, nil
}

func TestEndOfTheAgentLeavesPodsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, s *Workers, f *fakeSyncer) {
		agent, stop := context.WithCancel(ctx)
		s.AdoptRunning(agent, nil)
		f.hang["u2"] = true
		s.UpdatePod(agent, newPod("u1", "web", 5))
		s.UpdatePod(agent, newPod("u2", "hung", 5))
		settle(2 * time.Second)
		stop()
		s.Wait()
		calls := f.take()
		slices.Sort(calls)
		if diff := cmp.Diff([]string{"sync u1", "sync u2"}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestRehearseEvict(t *testing.T) {
	recorded := 0
	RehearseEvict("none", time.Second, func() { recorded++ })
	if recorded != 1 {
		t.Errorf("record was called %d times", recorded)
	}
}
