package health

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// supervised runs one task in a bubble until the test's end, with what is
// logged.
func supervised(t *testing.T, name string, once bool, run func(context.Context) error) (*Supervisor, *bytes.Buffer, context.CancelFunc, *sync.WaitGroup) {
	t.Helper()
	var text bytes.Buffer
	s := &Supervisor{log: slog.New(slog.NewTextHandler(&text, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx, &Task{Name: name, Once: once, Run: run}) })
	return s, &text, cancel, &wg
}

func TestTaskThatEndsEarlyIsRestarted(t *testing.T) {
	for name, failure := range map[string]error{"with an error": errors.New("no epoll"), "without an error": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				begins, broken := []time.Duration(nil), true
				s, text, cancel, wg := supervised(t, "poller", false, func(ctx context.Context) error {
					mu.Lock()
					begins = append(begins, time.Since(start))
					fails := broken
					mu.Unlock()
					if fails {
						return failure
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
				health := func(want string) {
					t.Helper()
					synctest.Wait()
					got := ""
					if err := s.Healthy(time.Now()); err != nil {
						got = err.Error()
					}
					if !strings.HasPrefix(got, want) || want == "" && got != "" {
						t.Errorf("after %v the tasks' health is %q, want %q", time.Since(start), got, want)
					}
				}
				cause := "no error"
				if failure != nil {
					cause = failure.Error()
				}
				health("poller does not run (ended early once): " + cause)
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123}
				for i := range want {
					want[i] *= time.Second
				}
				mu.Lock()
				if !slices.Equal(begins, want) {
					t.Errorf("it began at %v, want %v", begins, want)
				}
				broken = false
				mu.Unlock()
				if n := strings.Count(text.String(), "task=poller"); n != 4 || !strings.Contains(text.String(), "level=ERROR") {
					t.Errorf("%d lines of 8 failures:\n%s", n, text)
				}
				time.Sleep(time.Minute)
				health("poller was restarted (ended early 8 times): ")
				time.Sleep(stableAfter)
				health("")
				cancel()
				wg.Wait()
				health("")
			})
		})
	}
}

// TestHealthyChangesNothing asks how tasks do at different times. What is over is
// forgotten when another task fails.
func TestHealthyChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Supervisor
		start := time.Now()
		s.record("poller", failure{times: 2, err: errors.New("no epoll"), since: start})
		if err := s.Healthy(start.Add(stableAfter)); err != nil {
			t.Errorf("a task that has run well since: %v", err)
		}
		if err := s.Healthy(start); err == nil || !strings.HasPrefix(err.Error(), "poller was restarted") {
			t.Errorf("after somebody has asked: %v", err)
		}
		time.Sleep(stableAfter)
		s.record("probes", failure{times: 1, err: errors.New("no"), waiting: true})
		if names := slices.Collect(maps.Keys(s.failing)); !slices.Equal(names, []string{"probes"}) {
			t.Errorf("remembered are %v", names)
		}
	})
}

// TestBackoffBeginsAnew has a task that fails after it has run well.
func TestBackoffBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		_, _, cancel, wg := supervised(t, "a", false, func(ctx context.Context) error {
			if runs.Add(1)%5 == 0 {
				time.Sleep(stableAfter)
			}
			return errors.New("no")
		})
		time.Sleep(stableAfter + (1+2+4+8+1+2)*time.Second - time.Millisecond)
		if synctest.Wait(); runs.Load() != 6 {
			t.Errorf("%d runs", runs.Load())
		}
		time.Sleep(time.Millisecond)
		if synctest.Wait(); runs.Load() != 7 {
			t.Errorf("%d runs", runs.Load())
		}
		cancel()
		wg.Wait()
	})
}

func TestTaskOfOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		s, text, cancel, wg := supervised(t, "cleanup", true, func(context.Context) error {
			if runs++; runs == 1 {
				return errors.New("busy")
			}
			return nil
		})
		defer cancel()
		wg.Wait()
		if runs != 2 || s.Healthy(time.Now()) != nil || strings.Count(text.String(), "busy") != 1 {
			t.Errorf("%d runs, %v\n%s", runs, s.Healthy(time.Now()), text)
		}
	})
}

// TestErrorAtTheEndIsLogged has tasks that return as their context ends.
func TestErrorAtTheEndIsLogged(t *testing.T) {
	for name, row := range map[string]struct {
		err    error
		logged bool
	}{"its cause": {context.Canceled, false}, "nothing": {nil, false}, "another error": {errors.New("disk full"), true}} {
		t.Run(name, func(t *testing.T) {
			_, text, cancel, wg := supervised(t, "a", false, func(ctx context.Context) error { <-ctx.Done(); return row.err })
			cancel()
			wg.Wait()
			if got := strings.Contains(text.String(), "task=a error=\"disk full\""); got != row.logged || !row.logged && text.Len() > 0 {
				t.Errorf("logged: %s", text)
			}
		})
	}
}

// TestStagesStopInReverse starts stages and has the tasks of each take a second to stop.
func TestStagesStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var did []string
		note := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			did = append(did, text)
		}
		task := func(name string) Task {
			return Task{Name: name, Run: func(ctx context.Context) error {
				note("start " + name)
				<-ctx.Done()
				note("stop " + name)
				time.Sleep(time.Second)
				note("stopped " + name)
				return context.Cause(ctx)
			}}
		}
		s := NewSupervisor(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		go func() {
			s.RunStages(ctx, []Stage{{Name: "one", Tasks: []Task{task("a")}}, {Name: "none"}, {Name: "two", Tasks: []Task{task("b"), task("c")}}})
			close(done)
		}()
		synctest.Wait()
		mu.Lock()
		slices.Sort(did)
		if want := []string{"start a", "start b", "start c"}; !slices.Equal(did, want) {
			t.Errorf("at first %q, want %q", did, want)
		}
		did = nil
		mu.Unlock()
		cancel(errors.New("the end"))
		<-done
		slices.Sort(did[:2])
		slices.Sort(did[2:4])
		if want := []string{"stop b", "stop c", "stopped b", "stopped c", "stop a", "stopped a"}; !slices.Equal(did, want) {
			t.Errorf("at the end %q, want %q", did, want)
		}
	})
}
