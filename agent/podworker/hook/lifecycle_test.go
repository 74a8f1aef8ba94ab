package hook

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// stubHooks answers every hook with the same.
type stubHooks struct {
	note string
	err  error

	ran    *v1.LifecycleHandler
	target handler.Target
}

func (s *stubHooks) Hook(_ context.Context, h *v1.LifecycleHandler, t handler.Target) (string, error) {
	s.ran, s.target = h, t
	return s.note, s.err
}

func newRunner(h HandlerRunner) (*Runner, *event.Recorder) {
	events := event.NewRecorder(slog.New(slog.NewTextHandler(io.Discard, nil)))
	return New(h, events), events
}

var (
	aPod  = pod.Ref{Name: "p", Namespace: "default", UID: "uid"}
	start = &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "x"}}}
	stop  = &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/bye"}}
	nap   = &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}
)

var errBroken = errors.New("connection refused")

// TestHooks checks which handler runs and how its failure is reported.
func TestHooks(t *testing.T) {
	both := &v1.Lifecycle{PostStart: start, PreStop: stop}
	postStart := func(r *Runner, c *v1.Container, _ *v1.LifecycleHandler) error {
		return r.PostStart(context.Background(), aPod, c, "c1", []string{"10.0.0.7", "fd00::7"})
	}
	preStop := func(r *Runner, c *v1.Container, h *v1.LifecycleHandler) error {
		return r.PreStop(context.Background(), aPod, c, "c1", []string{"10.0.0.7", "fd00::7"}, h)
	}
	cases := []struct {
		name      string
		call      func(*Runner, *v1.Container, *v1.LifecycleHandler) error
		lifecycle *v1.Lifecycle
		handler   *v1.LifecycleHandler
		err       error
		ran       *v1.LifecycleHandler
		want      *Error
	}{
		{"postStart", postStart, both, nil, nil, start, nil},
		{"preStop", preStop, both, stop, nil, stop, nil},
		{"postStart fails", postStart, both, nil, &handler.ExitError{Code: 3, Output: "a secret"}, start, &Error{
			Reason: "FailedPostStartHook", Message: "PostStartHook failed",
			Detail: `Exec lifecycle hook ([sh -c x]) for Container "web" in Pod "p_default(uid)" failed - error: command exited with 3, message: "a secret"`,
		}},
		{"preStop fails", preStop, both, stop, errBroken, stop, &Error{
			Reason: "FailedPreStopHook", Message: "PreStopHook failed",
			Detail: `HTTP lifecycle hook (/bye) for Container "web" in Pod "p_default(uid)" failed - error: connection refused`,
		}},
		{"sleep fails", preStop, nil, nap, errBroken, nap, &Error{
			Reason: "FailedPreStopHook", Message: "PreStopHook failed",
			Detail: `Sleep lifecycle hook (5) for Container "web" in Pod "p_default(uid)" failed - error: connection refused`,
		}},
		{"unknown handler", preStop, nil, &v1.LifecycleHandler{}, errBroken, &v1.LifecycleHandler{}, &Error{
			Reason: "FailedPreStopHook", Message: "PreStopHook failed", Detail: "Cannot run handler: connection refused",
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			hooks := &stubHooks{err: tc.err}
			r, events := newRunner(hooks)
			err := tc.call(r, &v1.Container{Name: "web", Lifecycle: tc.lifecycle}, tc.handler)
			if diff := cmp.Diff(tc.ran, hooks.ran); diff != "" {
				t.Errorf("handler (-want +got):\n%s", diff)
			}
			if hooks.ran != nil && (hooks.target.ContainerID != "c1" || hooks.target.IP != "10.0.0.7") {
				t.Errorf("run against %v", hooks.target)
			}
			if tc.want == nil {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			var got *Error
			if !errors.As(err, &got) || !errors.Is(err, tc.err) {
				t.Fatalf("error %v", err)
			}
			if got.Reason != tc.want.Reason || got.Message != tc.want.Message || got.Detail != tc.want.Detail {
				t.Errorf("got %+v,\nwant %+v", got, tc.want)
			}
			if strings.Contains(err.Error(), "secret") || len(events.Recent()) != 0 {
				t.Errorf("the output leaks in %q, or events %v", err, events.Recent())
			}
		})
	}
}

// TestNote checks that a fallback from HTTPS to HTTP records an event.
func TestNote(t *testing.T) {
	r, events := newRunner(&stubHooks{note: "request to HTTPS lifecycle hook x got HTTP response, retry with HTTP succeeded"})
	if err := r.PreStop(t.Context(), aPod, &v1.Container{Name: "web"}, "c1", nil, stop); err != nil {
		t.Fatal(err)
	}
	if got := events.Recent(); len(got) != 1 || got[0].Reason != "LifecycleHTTPFallback" || got[0].Type != v1.EventTypeWarning {
		t.Errorf("events %v", got)
	}
}

// TestCutOff checks hooks that do not end before their context.
func TestCutOff(t *testing.T) {
	c := &v1.Container{Name: "web", Lifecycle: &v1.Lifecycle{PostStart: nap, PreStop: nap}}
	cases := []struct {
		name string
		call func(*Runner, context.Context) error
		end  func(context.Context) (context.Context, context.CancelFunc)
		took time.Duration
		want string // the event's reason
	}{
		{"preStop over the grace period", func(r *Runner, ctx context.Context) error {
			return r.PreStop(ctx, aPod, c, "c1", nil, nap)
		}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, 3 * time.Second, ""},
		{"preStop when the agent ends", func(r *Runner, ctx context.Context) error {
			return r.PreStop(ctx, aPod, c, "c1", nil, nap)
		}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, 0, ReasonFailedPreStop},
		{"postStart", func(r *Runner, ctx context.Context) error {
			return r.PostStart(ctx, aPod, c, "c1", nil)
		}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, 3 * time.Second, ReasonFailedPostStart},
		{"in time", func(r *Runner, ctx context.Context) error {
			return r.PostStart(ctx, aPod, c, "c1", nil)
		}, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, 5 * time.Second, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRunner(handler.New(nil))
				ctx, cancel := tc.end(t.Context())
				defer cancel()
				begun := time.Now()
				reason := ""
				if err, failed := errors.AsType[*Error](tc.call(r, ctx)); failed {
					reason = err.Reason
				}
				if reason != tc.want || time.Since(begun) != tc.took {
					t.Errorf("after %v: reason %q, want %q after %v", time.Since(begun), reason, tc.want, tc.took)
				}
			})
		})
	}
}

// TestGrace checks the rest of the grace period after a hook.
func TestGrace(t *testing.T) {
	const s = time.Second
	cases := []struct {
		name                 string
		total, elapsed, want time.Duration
	}{
		{"no hook", 30 * s, 0, 30 * s},
		{"part of a second", 30 * s, 1900 * time.Millisecond, 29 * s},
		{"nearly all", 30 * s, 29 * s, 2 * s},
		{"all", 30 * s, 30 * s, 2 * s},
		{"more than all", 30 * s, 31 * s, 2 * s},
		{"none", 0, 0, 2 * s},
		{"one second", 1 * s, 0, 2 * s},
		{"negative", -5 * s, 0, 2 * s},
		{"clock went back", 30 * s, -5 * s, 30 * s},
		{"extremes", math.MaxInt64, math.MaxInt64, 2 * s},
		{"other extremes", math.MinInt64, math.MinInt64, 2 * s},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := RemainingGracePeriod(tc.total, tc.elapsed); got != tc.want {
				t.Errorf("Grace(%v, %v) = %v, want %v", tc.total, tc.elapsed, got, tc.want)
			}
		})
	}
}
