package local

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// watching starts WatchEvents and returns the events that it receives.
func watching(ctx context.Context, c *Client) (<-chan event.Event, <-chan error) {
	seen, done := make(chan event.Event), make(chan error, 1)
	go func() {
		done <- c.WatchEvents(ctx, func(e event.Event) error {
			select {
			case seen <- e:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	return seen, done
}

func wantReason(t *testing.T, seen <-chan event.Event, reason string) {
	t.Helper()
	select {
	case e := <-seen:
		if e.Reason != reason {
			t.Fatalf("event %+v, want %s", e, reason)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no event %s", reason)
	}
}

func TestWatchEvents(t *testing.T) {
	r := event.NewRecorder(slog.New(slog.DiscardHandler))
	ref := pod.Ref{UID: "1", Namespace: "default", Name: "web"}
	r.Normal(ref, "Before", "m")
	c := start(t, Config{Watch: r.Watch, Events: r.Recent})
	ctx, cancel := context.WithCancelCause(t.Context())
	seen, done := watching(ctx, c)
	wantReason(t, seen, "Before")
	r.Normal(ref, "After", "m")
	wantReason(t, seen, "After")
	r.Normal(ref, "Before", "m")
	wantReason(t, seen, "Before")
	if _, err := c.Events(t.Context()); err != nil {
		t.Errorf("a question beside the watch: %v", err)
	}
	why := errors.New("enough")
	cancel(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("WatchEvents = %v", err)
	}
}

func TestWatchEndsWithTheAgent(t *testing.T) {
	r := event.NewRecorder(slog.New(slog.DiscardHandler))
	path := filepath.Join(t.TempDir(), "tinylet.sock")
	ctx, cancel := context.WithCancel(t.Context())
	wait := run(ctx, t, Config{SocketPath: path, Watch: r.Watch})
	seen, done := watching(t.Context(), NewClient(path))
	r.Normal(pod.Ref{}, "One", "m")
	wantReason(t, seen, "One")
	began := time.Now()
	cancel()
	if err := wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if took := time.Since(began); took >= shutdownTimeout {
		t.Errorf("the end took %v", took)
	}
	if err := <-done; !errors.Is(err, ErrNotRunning) {
		t.Errorf("WatchEvents = %v", err)
	}
}

func TestWatchErrors(t *testing.T) {
	r := event.NewRecorder(slog.New(slog.DiscardHandler))
	r.Normal(pod.Ref{}, "One", "m")
	c := start(t, Config{Watch: r.Watch})
	broken := errors.New("broken")
	if err := c.WatchEvents(t.Context(), func(event.Event) error { return broken }); !errors.Is(err, broken) || err.Error() != "broken" {
		t.Errorf("WatchEvents = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := 0; n < maxWatches; {
		seen, done := watching(ctx, c)
		select {
		case <-seen:
			n++
		case err := <-done: // the one that broke is not gone yet
			if !strings.Contains(err.Error(), "too many") {
				t.Fatal(err)
			}
		}
	}
	if err := c.WatchEvents(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("WatchEvents beside %d others = %v", maxWatches, err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("a question beside %d watches: %v", maxWatches, err)
	}
}
