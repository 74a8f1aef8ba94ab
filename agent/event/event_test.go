package event

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/pod"
)

func TestEventsAreCountedAndSeldomLogged(t *testing.T) {
	var out bytes.Buffer
	r := NewRecorder(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(1_000_000, 0)
	r.now = func() time.Time { return now }
	ref := pod.Ref{UID: "u", Namespace: "default", Name: "web"}
	for range 180 { // half an hour
		r.Warning(ref, "Failed", "no coffee")
		now = now.Add(10 * time.Second)
	}
	r.Normal(ref, "Started", "Started container c")
	events := r.Recent()
	if len(events) != 2 || events[0].Count != 180 || events[0].Last.Sub(events[0].First) != 1790*time.Second || events[1].Reason != "Started" {
		t.Errorf("events: %+v", events)
	}
	if n := strings.Count(out.String(), "no coffee"); n != 3 {
		t.Errorf("logged %d times in half an hour, want 3:\n%s", n, out.String())
	}
}

func TestOldEventsAreForgotten(t *testing.T) {
	r := NewRecorder(slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil)))
	for i := range 2 * kept {
		r.Normal(pod.Ref{}, "R", fmt.Sprint(i))
	}
	events := r.Recent()
	if len(events) != kept || events[0].Message != fmt.Sprint(kept) || events[kept-1].Message != fmt.Sprint(2*kept-1) {
		t.Errorf("%d events from %s to %s", len(events), events[0].Message, events[len(events)-1].Message)
	}
}
