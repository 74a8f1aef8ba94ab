package eventsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// server is an API server whose requests are texts, such as "create Pulled 3".
type server struct {
	*apiservertest.Server
	t *testing.T

	mu    sync.Mutex
	calls []string
	// fail may reject a call; late means that only the response is lost.
	fail func(call string) (err error, late bool)
	lost error // in place of the current response
}

func newServer(t *testing.T) *server {
	s := &server{t: t, Server: apiservertest.New()}
	s.SetFaults(apiservertest.Faults{Before: s.before, After: func(context.Context, apiservertest.Call) error { return s.lost }})
	return s
}

func (s *server) before(_ context.Context, c apiservertest.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Resource != apiclient.CoreEvents || c.Verb == "patch" && c.PatchType != types.MergePatchType {
		s.t.Errorf("%s of type %s", c, c.PatchType)
	}
	call := "patch " + c.Patch
	if e, ok := c.Object.(*v1.Event); ok {
		call = fmt.Sprintf("create %s %d", e.Reason, e.Count)
		if errs := validation.IsDNS1123Subdomain(e.Name); len(errs) > 0 {
			s.t.Errorf("name %q: %v", e.Name, errs)
		}
		if about := e.InvolvedObject.Namespace; about != e.Namespace && (about != "" || e.Namespace != "default") {
			s.t.Errorf("namespace %q, of the object %q", e.Namespace, about)
		}
	}
	s.calls, s.lost = append(s.calls, call), nil
	if s.fail == nil {
		return nil
	}
	err, late := s.fail(call)
	if late {
		s.lost, err = err, nil
	}
	return err
}

// made waits until nothing is in flight and returns the calls since the last call
// of made.
func (s *server) made() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *server) expect(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.made()); diff != "" {
		s.t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// failing makes calls fail; nil makes none fail.
func (s *server) failing(fail func(string) (error, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

var web = pod.Ref{UID: "u1", Namespace: "shop", Name: "web"}

// sinking runs play in virtual time while a Sink sends the events of a recorder.
func sinking(t *testing.T, change func(*Config), play func(*server, *event.Recorder)) (log string) {
	t.Helper()
	var text bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		api := newServer(t)
		events := event.NewRecorder(slog.New(slog.DiscardHandler))
		config := Config{API: api, Watch: events.Watch, NodeName: "n", Log: slog.New(slog.NewTextHandler(&text, nil))}
		if change != nil {
			change(&config)
		}
		s, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		stop := errors.New("the test is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		play(api, events)
		cancel(stop)
		if err := <-ended; !errors.Is(err, stop) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return text.String()
}

func TestObjects(t *testing.T) {
	sinking(t, nil, func(api *server, events *event.Recorder) {
		start := time.Now()
		events.Normal(web, "Pulled", "an image")
		events.Warning(pod.Ref{}, "Rebooted", "the node")
		events.Warning(pod.Ref{Namespace: "../x", Name: "y"}, "Broken", "no name")
		synctest.Wait()
		var got []v1.Event
		for _, e := range apiservertest.All[*v1.Event](api.Server) {
			e = e.DeepCopy()
			e.UID, e.ResourceVersion, e.CreationTimestamp = "", "", metav1.Time{}
			if !e.FirstTimestamp.Equal(&e.LastTimestamp) || !e.FirstTimestamp.Time.Equal(start) || e.Count != 1 {
				t.Errorf("times or count of %+v", e)
			}
			if !strings.HasSuffix(e.Name, fmt.Sprintf(".%x", start.UnixNano())) && !strings.HasSuffix(e.Name, fmt.Sprintf(".%x", start.UnixNano()+1)) {
				t.Errorf("name %s", e.Name)
			}
			e.Name, _, _ = strings.Cut(e.Name, ".")
			e.FirstTimestamp, e.LastTimestamp, e.Count = e.FirstTimestamp.Rfc3339Copy(), e.FirstTimestamp.Rfc3339Copy(), 0
			got = append(got, *e)
		}
		slices.SortFunc(got, func(a, b v1.Event) int { return strings.Compare(a.Reason, b.Reason) })
		node := v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "n"}
		want := []v1.Event{
			{Type: "Warning", Reason: "Broken", Message: "no name", InvolvedObject: node},
			{Type: "Normal", Reason: "Pulled", Message: "an image", InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "u1"}},
			{Type: "Warning", Reason: "Rebooted", Message: "the node", InvolvedObject: node},
		}
		for i := range want {
			want[i].Name, want[i].Namespace = "n", "default"
			if want[i].InvolvedObject.Kind == "Pod" {
				want[i].Name, want[i].Namespace = "web", "shop"
			}
			want[i].Source = v1.EventSource{Component: "kubelet", Host: "n"}
			want[i].ReportingController, want[i].ReportingInstance = "kubelet", "n"
			want[i].FirstTimestamp, want[i].LastTimestamp = got[i].FirstTimestamp, got[i].LastTimestamp
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	})
}

func TestRepetitionIsPatched(t *testing.T) {
	sinking(t, nil, func(api *server, events *event.Recorder) {
		backOff := func() { events.Warning(web, "BackOff", "no luck") }
		backOff()
		api.expect("create BackOff 1")
		// Every ten seconds for an hour: a patch each 5 to 5.5 min.
		for range 360 {
			time.Sleep(10 * time.Second)
			backOff()
		}
		calls := api.made()
		if n := len(calls); n < 10 || n > 12 {
			t.Errorf("%d calls in an hour: %q", n, calls)
		}
		for _, call := range calls {
			if !strings.HasPrefix(call, `patch {"count":`) || strings.Contains(call, "message") {
				t.Errorf("call %q", call)
			}
		}
		time.Sleep(10 * time.Minute)
		last := api.made()
		want := `patch {"count":361,"lastTimestamp":"` + time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339) + `"}`
		if len(last) != 1 || last[0] != want {
			t.Errorf("calls after the last: %q, want %q", last, want)
		}
		// Nothing more happens, and nothing wakes the sink.
		time.Sleep(24 * time.Hour)
		api.expect()
		// The server forgets, and learns of it anew.
		api.Restore(1)
		backOff()
		if calls := api.made(); len(calls) != 2 || calls[1] != "create BackOff 362" {
			t.Errorf("calls %q", calls)
		}
	})
}

func TestCombinedEventsArePatchedWithTheMessage(t *testing.T) {
	sinking(t, nil, func(api *server, events *event.Recorder) {
		for i := range 20 {
			events.Normal(web, "Killing", fmt.Sprint("container ", i))
			synctest.Wait()
		}
		if n := len(api.made()); n != 11 {
			t.Errorf("%d calls, want ten events and the one for the others", n)
		}
		time.Sleep(6 * time.Minute)
		calls := api.made()
		if len(calls) != 1 || !strings.Contains(calls[0], `"count":10`) || !strings.Contains(calls[0], event.Combined+"container 19") {
			t.Errorf("calls %q", calls)
		}
	})
}

func TestOutage(t *testing.T) {
	down := func(string) (error, bool) { return io.ErrUnexpectedEOF, false }
	log := sinking(t, nil, func(api *server, events *event.Recorder) {
		events.Normal(web, "Pulled", "before")
		api.expect("create Pulled 1")
		api.failing(down)
		time.Sleep(time.Second)
		for i := range 300 {
			events.Normal(pod.Ref{Namespace: "shop", Name: fmt.Sprint("p", i)}, "Created", "x")
		}
		events.Normal(web, "Pulled", "before")
		time.Sleep(24 * time.Hour)
		if n := len(api.made()); n < 700 || n > 1500 {
			t.Errorf("%d calls in a day without a link", n)
		}
		events.Normal(web, "Started", "meanwhile")
		events.Normal(web, "Started", "meanwhile")
		api.failing(nil)
		time.Sleep(3 * time.Minute)
		calls := api.made()
		// What the recorder remembers, in its order, each once.
		if len(calls) != 256 || calls[0] != "create Created 1" || calls[254] != "create Pulled 1" || calls[255] != "create Started 2" {
			t.Errorf("%d calls, the last %q", len(calls), calls[max(0, len(calls)-3):])
		}
		time.Sleep(24 * time.Hour)
		api.expect()
	})
	if strings.Count(log, "\n") != 2 || !strings.Contains(log, "cannot send events") || !strings.Contains(log, "sending events to API server again") {
		t.Errorf("log:\n%s", log)
	}
}

func TestRefusals(t *testing.T) {
	gone := apierrors.NewNotFound(v1.Resource("namespaces"), "shop")
	for _, tt := range []struct {
		name string
		err  error
		most int // calls until it is given up
		n    int // or taken, after so many
	}{
		{"no namespace", gone, 1, 0},
		{"namespace goes", apierrors.NewForbidden(v1.Resource("events"), "x", nil), 1, 0},
		{"invalid", apierrors.NewBadRequest("no"), 1, 0},
		{"webhook breaks", apierrors.NewInternalError(errors.New("webhook")), maxTries, 0},
		{"credentials", apierrors.NewUnauthorized("no"), 0, 30},
		{"overload", apierrors.NewTooManyRequests("later", 1), 0, 30},
		{"unavailable", apierrors.NewServiceUnavailable("later"), 0, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := sinking(t, nil, func(api *server, events *event.Recorder) {
				n := 0
				api.failing(func(call string) (error, bool) {
					if n++; strings.Contains(call, "Bad") && (tt.n == 0 || n <= tt.n) {
						return fmt.Errorf("create event: %w", tt.err), false
					}
					return nil, false
				})
				events.Normal(web, "Bad", "x")
				events.Normal(web, "Good", "x")
				time.Sleep(2 * time.Hour)
				var want []string
				for range max(tt.most, tt.n) {
					want = append(want, "create Bad 1")
				}
				if tt.n > 0 {
					want = append(want, "create Bad 1")
				}
				api.expect(append(want, "create Good 1")...)
				// It happens again: one attempt more.
				api.failing(nil)
				events.Normal(web, "Bad", "x")
				time.Sleep(10 * time.Minute)
				if calls := api.made(); len(calls) != 1 || (tt.most > 0 && calls[0] != "create Bad 2") {
					t.Errorf("calls %q", calls)
				}
			})
			if tt.most == 1 && strings.Count(log, "rejected event") != 1 {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

func TestManyRefusalsAreOneWarning(t *testing.T) {
	log := sinking(t, nil, func(api *server, events *event.Recorder) {
		api.failing(func(string) (error, bool) { return apierrors.NewForbidden(v1.Resource("events"), "x", nil), false })
		for i := range 100 {
			events.Normal(pod.Ref{Namespace: "shop", Name: fmt.Sprint("p", i)}, "Created", "x")
		}
		if n := len(api.made()); n != 100 {
			t.Errorf("%d calls", n)
		}
	})
	if strings.Count(log, "\n") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

// TestNameIsTaken covers an event of an earlier boot of a node whose clock starts
// again at the same time, and a lost response.
func TestNameIsTaken(t *testing.T) {
	sinking(t, nil, func(api *server, events *event.Recorder) {
		api.Put(&v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: nameOf("web", time.Now().UnixNano())}})
		events.Normal(web, "Pulled", "x")
		api.expect("create Pulled 1", "create Pulled 1")
		if n := len(apiservertest.All[*v1.Event](api.Server)); n != 2 {
			t.Errorf("%d objects", n)
		}
		lost := true
		api.failing(func(string) (error, bool) {
			if lost {
				lost = false
				return io.ErrUnexpectedEOF, true
			}
			return nil, false
		})
		time.Sleep(time.Hour)
		events.Normal(web, "Started", "x")
		time.Sleep(time.Minute)
		api.expect("create Started 1", "create Started 1")
		if n := len(apiservertest.All[*v1.Event](api.Server)); n != 3 {
			t.Errorf("%d objects: an event stands twice", n)
		}
	})
}

func TestRate(t *testing.T) {
	sinking(t, func(c *Config) { c.QPS, c.Burst = 0.2, 25 }, func(api *server, events *event.Recorder) {
		for i := range 100 {
			events.Normal(pod.Ref{Namespace: "shop", Name: fmt.Sprint("p", i)}, "Created", "x")
		}
		if n := len(api.made()); n != 25 {
			t.Errorf("%d calls at once", n)
		}
		time.Sleep(100*time.Second + time.Millisecond)
		if n := len(api.made()); n != 20 {
			t.Errorf("%d calls in 100 s", n)
		}
		time.Sleep(time.Hour)
		if n := len(api.made()); n != 55 {
			t.Errorf("%d calls then", n)
		}
	})
}

func TestKnownIsBounded(t *testing.T) {
	var s *Sink
	synctest.Test(t, func(t *testing.T) {
		api := newServer(t)
		events := event.NewRecorder(slog.New(slog.DiscardHandler))
		var err error
		if s, err = New(Config{API: api, Watch: events.Watch, NodeName: "n", Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for i := range 5000 {
			events.Normal(pod.Ref{Namespace: "shop", Name: fmt.Sprint("p", i)}, "Created", "x")
			synctest.Wait()
		}
		if len(s.sent) > maxKnown {
			t.Errorf("%d events are known", len(s.sent))
		}
		if n := len(api.made()); n != 5000 {
			t.Errorf("%d calls", n)
		}
		cancel()
		<-ended
	})
}

func TestReadyHoldsEventsBack(t *testing.T) {
	ready := func(ctx context.Context) error {
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	sinking(t, func(c *Config) { c.Ready = ready }, func(api *server, events *event.Recorder) {
		events.Normal(web, "Pulled", "x")
		api.expect()
		time.Sleep(time.Hour)
		api.expect("create Pulled 1")
	})
	sinking(t, func(c *Config) { c.Ready = ready }, func(*server, *event.Recorder) {})
}

func TestWall(t *testing.T) {
	now := time.Now()
	clock := now.Round(0).AddDate(50, 0, 0) // the clock was set since
	if got, want := wall(now.Add(-time.Minute), now, clock), clock.Add(-time.Minute); !got.Equal(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNames(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for about, want := range map[string]string{
		"web":                    fmt.Sprintf("web.%x", at.UnixNano()),
		strings.Repeat("a", 253): fmt.Sprintf("%s.%x", strings.Repeat("a", 236), at.UnixNano()),
		strings.Repeat("a", 234) + ".-." + strings.Repeat("b", 16): fmt.Sprintf("%s.%x", strings.Repeat("a", 234), at.UnixNano()),
	} {
		if got := nameOf(about, at.UnixNano()); got != want || len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("name %s, want %s", got, want)
		}
	}
	if got := nameOf("n", -5); len(validation.IsDNS1123Subdomain(got)) > 0 {
		t.Errorf("name %s", got)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty configuration is taken")
	}
}

// TestRecovery lets another component notice first that the server answers again.
func TestRecovery(t *testing.T) {
	var back chan struct{}
	sinking(t, func(c *Config) {
		back = make(chan struct{})
		c.Recovered = func() <-chan struct{} {
			select {
			case <-back:
				return nil
			default:
				return back
			}
		}
	}, func(api *server, events *event.Recorder) {
		api.failing(func(string) (error, bool) { return io.EOF, false })
		events.Normal(web, "Pulled", "an image")
		time.Sleep(time.Hour)
		api.failing(nil)
		api.made()
		close(back)
		time.Sleep(time.Second)
		api.expect("create Pulled 1")
	})
}
