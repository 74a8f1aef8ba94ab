package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod/event"
)

// never is the time to end of a pod that does not end.
const never = time.Duration(-1)

// board is a node whose pods take some time to end.
type board struct {
	*Manager
	t     *testing.T
	since time.Time

	mu      sync.Mutex
	pods    []*v1.Pod
	takes   map[types.UID]time.Duration
	ended   map[types.UID]bool
	calls   []string
	changes int
}

var threePeriods = []Period{{0, 10 * time.Second}, {100, 20 * time.Second}, {systemCritical, 5 * time.Second}}

func newBoard(t *testing.T, periods []Period, log io.Writer) *board {
	b := &board{t: t, since: time.Now(), takes: map[types.UID]time.Duration{}, ended: map[types.UID]bool{}}
	logger := slog.New(slog.NewTextHandler(log, nil))
	b.Manager = New(Config{
		State: NewState(), Periods: periods, Pods: b.list, End: b.end, Ended: b.hasEnded, Changed: b.changed,
		Events: event.NewRecorder(slog.New(slog.DiscardHandler)), Root: t.TempDir(), Log: logger,
	})
	return b
}

// bubble runs a test in virtual time, concurrently with the board's Run.
func bubble(t *testing.T, periods []Period, test func(ctx context.Context, b *board)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, periods, io.Discard)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- b.Run(ctx) }()
		test(ctx, b)
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Run answered %v", err)
		}
	})
}

func (b *board) add(p *v1.Pod, takes time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods = append(b.pods, p)
	b.takes[p.UID] = takes
}

func (b *board) list() []*v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pods)
}

func (b *board) hasEnded(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended[uid]
}

func (b *board) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes++
}

func (b *board) end(p *v1.Pod, grace time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf("at %v: %s within %v", b.age(), p.Name, grace))
	if takes := b.takes[p.UID]; takes != never {
		time.AfterFunc(takes, func() {
			b.mu.Lock()
			b.ended[p.UID] = true
			b.mu.Unlock()
			b.Notify()
		})
	}
}

func (b *board) age() time.Duration { return time.Since(b.since) }

func (b *board) wantCalls(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if diff := cmp.Diff(want, b.calls); diff != "" {
		b.t.Errorf("pods told to end (-want +got):\n%s", diff)
	}
	b.calls = nil
}

func (b *board) wantAge(want time.Duration) {
	b.t.Helper()
	if got := b.age(); got != want {
		b.t.Errorf("it is %v, want %v", got, want)
	}
}

func (b *board) wantInProgress(want bool, changes int) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.InProgress() != want || b.changes != changes {
		b.t.Errorf("in progress %t, told %d times; want %t, %d", b.InProgress(), b.changes, want, changes)
	}
}

// A shutdown that is requested after the end of Run begins nothing.
func TestShutdownAfterTheEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, threePeriods, io.Discard)
		stop := errors.New("the agent stops")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		if err := b.Run(ctx); !errors.Is(err, stop) {
			t.Errorf("Run = %v", err)
		}
		limited, cancelWait := context.WithTimeout(t.Context(), time.Hour)
		defer cancelWait()
		if err := b.Shutdown(limited); !errors.Is(err, stop) {
			t.Errorf("Shutdown = %v, want %v", err, stop)
		}
		b.wantInProgress(false, 0)
	})
}

func TestGroupsEndInTheirOrder(t *testing.T) {
	bubble(t, threePeriods, func(ctx context.Context, b *board) {
		b.add(newPod("dns", systemCritical+5, 30), time.Second)
		b.add(newPod("web", 0, 30), 3*time.Second)
		b.add(newPod("job", -7, 2), 2*time.Second)
		b.add(newPod("stuck", 500, 30), never)
		b.add(newPod("db", 100, 60), 4*time.Second)
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		// What the first group leaves of its ten seconds the second does not
		// get; a pod that never ends costs its own group's time.
		b.wantCalls("at 0s: web within 10s", "at 0s: job within 2s",
			"at 3s: stuck within 20s", "at 3s: db within 20s", "at 23s: dns within 5s")
		b.wantAge(24 * time.Second)
		b.wantInProgress(true, 1)
	})
}

func TestGroupsWithoutPodsOrTimeAreNotWaitedFor(t *testing.T) {
	bubble(t, []Period{{0, 10 * time.Second}, {100, 0}, {200, 10 * time.Second}}, func(ctx context.Context, b *board) {
		b.add(newPod("db", 100, 30), never)
		b.add(newPod("over", 0, 30), never)
		b.ended["over"] = true
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		b.wantCalls("at 0s: db within 1s")
		b.wantAge(0)
	})
}

func TestShutdownIsBegunOnce(t *testing.T) {
	bubble(t, threePeriods, func(ctx context.Context, b *board) {
		b.add(newPod("web", 0, 30), 8*time.Second)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if err := b.Shutdown(ctx); err != nil {
					t.Error(err)
				}
				b.wantAge(8 * time.Second)
			})
		}
		wg.Wait()
		if err := b.Shutdown(ctx); err != nil { // it has ended
			t.Error(err)
		}
		b.wantAge(8 * time.Second)
		b.wantCalls("at 0s: web within 10s")
		b.wantInProgress(true, 1)
	})
}

func TestCancelLeavesTheNextGroupsAlone(t *testing.T) {
	bubble(t, threePeriods, func(ctx context.Context, b *board) {
		b.add(newPod("web", 0, 30), 7*time.Second)
		b.add(newPod("db", 100, 30), time.Second)
		time.AfterFunc(5*time.Second, b.Cancel)
		if err := b.Shutdown(ctx); !errors.Is(err, ErrCancelled) {
			t.Errorf("got %v", err)
		}
		b.wantAge(5 * time.Second)
		b.wantInProgress(false, 2)
		time.Sleep(time.Minute)
		b.wantCalls("at 0s: web within 10s")
		b.Cancel() // nothing to take back
		b.wantInProgress(false, 2)

		if err := b.Shutdown(ctx); err != nil { // in earnest now
			t.Error(err)
		}
		b.wantCalls("at 1m5s: db within 20s")
		b.wantAge(66 * time.Second)
		b.wantInProgress(true, 3)
		b.Cancel() // after its end
		b.wantInProgress(false, 4)
	})
}

func TestShutdownAndCancelAtOnce(t *testing.T) {
	bubble(t, threePeriods, func(ctx context.Context, b *board) {
		b.add(newPod("web", 0, 30), time.Second)
		first := b.begin(fromHere)
		b.Cancel()
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if !errors.Is(first.err, ErrCancelled) {
			t.Errorf("the first ended with %v", first.err)
		}
		if !b.hasEnded("web") {
			t.Error("the pod had not ended")
		}
	})
}

func TestPodThatComesLate(t *testing.T) {
	bubble(t, threePeriods, func(ctx context.Context, b *board) {
		b.add(newPod("web", 0, 30), 6*time.Second)
		b.add(newPod("db", 100, 30), 10*time.Second)
		time.AfterFunc(4*time.Second, func() {
			b.add(newPod("late", 0, 30), 5*time.Second)
			b.add(newPod("late-db", 150, 30), time.Second)
			b.Notify()
		})
		time.AfterFunc(12*time.Second, func() {
			b.add(newPod("later", 0, 30), never)
			b.Notify()
		})
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		b.wantCalls("at 0s: web within 10s", "at 4s: late within 6s",
			"at 9s: db within 20s", "at 9s: late-db within 20s", "at 12s: later within 17s")
		b.wantAge(29 * time.Second)
	})
}

func TestShutdownOutlivesWhoAskedForIt(t *testing.T) {
	bubble(t, threePeriods, func(ctx context.Context, b *board) {
		b.add(newPod("web", 0, 30), 6*time.Second)
		b.add(newPod("db", 100, 30), time.Second)
		hasty, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := b.Shutdown(hasty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		b.wantCalls("at 0s: web within 10s", "at 6s: db within 20s")
		b.wantAge(7 * time.Second)
	})
}

func TestEndOfRunEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, threePeriods, io.Discard)
		b.add(newPod("web", 0, 30), never)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { cancel(stop) })
		go func() { _ = b.Run(ctx) }()
		if err := b.Shutdown(t.Context()); !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
		b.wantAge(2 * time.Second)
	})
}

func TestShutdownThatIsNotConfigured(t *testing.T) {
	bubble(t, nil, func(ctx context.Context, b *board) {
		b.add(newPod("web", 0, 30), time.Second)
		if err := b.Shutdown(ctx); !errors.Is(err, ErrOff) {
			t.Errorf("got %v", err)
		}
		b.wantCalls()
		b.wantInProgress(false, 0)
	})
}

func TestRequested(t *testing.T) {
	folder := t.TempDir()
	flag := filepath.Join(folder, "shutdown")
	m := New(Config{State: NewState(), FlagFile: flag})
	if m.Requested() {
		t.Error("requested without the file")
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !m.Requested() {
		t.Error("not requested with the file")
	}
	if New(Config{State: NewState(), FlagFile: folder}).Requested() {
		t.Error("requested by a folder")
	}
}
