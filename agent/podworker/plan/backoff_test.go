package plan

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/container"
)

func TestBackoff(t *testing.T) {
	const s = time.Second
	for _, r := range []struct {
		name  string
		last  container.Container
		max   time.Duration
		image string
		wait  time.Duration // from now; 0 starts at once
		next  time.Duration // stored with the new container
	}{
		{name: "the first end restarts at once", last: exited("a0", "a", 1), next: 10 * s},
		{name: "an end with 0 counts like any", last: exited("a1", "a", 0, backoff(10*s)), wait: 9 * s},
		{name: "10 s over", last: exited("a1", "a", 1, backoff(10*s), ran(-20*s, -10*s)), next: 20 * s},
		{name: "10 s nearly over", last: exited("a1", "a", 1, backoff(10*s), ran(-20*s, -10*s+1)), wait: 1},
		{name: "20 s", last: exited("a2", "a", 1, backoff(20*s), ran(-40*s, -20*s)), next: 40 * s},
		{name: "160 s is followed by the longest", last: exited("a6", "a", 1, backoff(160*s), ran(-200*s, -160*s)), next: 300 * s},
		{name: "the longest stays", last: exited("a9", "a", 1, backoff(300*s), ran(-400*s, -300*s)), next: 300 * s},
		{name: "a stored wait above the longest is cut", last: exited("a9", "a", 1, backoff(9000*s), ran(-400*s, -299*s)), wait: s},
		{name: "a hostile stored wait is no wait", last: exited("a9", "a", 1, backoff(-9000*s)), next: 10 * s},
		{name: "a shorter longest wait", last: exited("a3", "a", 1, backoff(4*s), ran(-9*s, -4*s)), max: 4 * s, next: 4 * s},
		{name: "a longest wait below the first", last: exited("a0", "a", 1), max: s, next: s},
		{name: "ten minutes of running do not reset", last: exited("a5", "a", 1, backoff(80*s), ran(-680*s, -80*s)), next: 160 * s},
		{name: "more than ten minutes of running reset", last: exited("a5", "a", 1, backoff(80*s), ran(-602*s, -s)), next: 10 * s},
		{name: "an end ten minutes ago does not reset", last: exited("a5", "a", 1, backoff(80*s), ran(-601*s, -600*s)), next: 160 * s},
		{name: "an end long ago resets", last: exited("a5", "a", 1, backoff(80*s), ran(-3602*s, -3600*s)), next: 10 * s},
		{name: "a changed spec does not wait", last: exited("a5", "a", 1, backoff(80*s)), image: "img:2", next: 10 * s},
		{name: "what never started counts like any", last: exited("a5", "a", 128, backoff(80*s), reason("StartError"), func(c *container.Container) { c.StartedAt = time.Time{} }), wait: 79 * s},
		{name: "a container lost with its node does not wait", last: exited("a5", "a", 255, backoff(80*s), reason("Unknown")), next: 80 * s},
		{name: "a program that exits with 255 does", last: exited("a5", "a", 255, backoff(80*s), reason("Error")), wait: 79 * s},
		{name: "a clock set back does not wait at all", last: exited("a5", "a", 1, backoff(80*s), ran(25*time.Hour-s, 25*time.Hour)), next: 160 * s},
		{name: "a clock set back during the run", last: exited("a5", "a", 1, backoff(80*s), ran(24*time.Hour, -s)), wait: 79 * s},
		{name: "a clock set forward by years restarts once", last: exited("a5", "a", 1, backoff(80*s), ran(-500000*time.Hour, -499999*time.Hour)), next: 10 * s},
		{name: "and what that start left behind waits again", last: exited("a6", "a", 1, backoff(10*s), ran(-2*s, -s)), wait: 9 * s},
		{name: "an end without a time does not wait", last: exited("a5", "a", 1, backoff(80*s), func(c *container.Container) { c.StartedAt, c.FinishedAt = time.Time{}, time.Time{} }), next: 10 * s},
	} {
		t.Run(r.name, func(t *testing.T) {
			p := basePod()
			if r.image != "" {
				image("a", r.image)(p)
			}
			got := Sync(Input{
				Pod: p, Observed: observed(ready("s0", 0), r.last, running("b0", "b")),
				Now: now, Hash: hashOf, MaxBackoff: r.max,
			})
			w, waits := got.Waiting["a"]
			if !waits {
				w.Until = now
			}
			if d := gocmp.Diff(r.wait, w.Until.Sub(now)); d != "" {
				t.Errorf("wait (-want +got):\n%s", d)
			}
			switch {
			case waits && len(got.Start) > 0:
				t.Errorf("waits and starts %v", got.Start)
			case waits && !got.Next.Equal(w.Until):
				t.Errorf("looks again at %v, not at %v", got.Next, w.Until)
			case !waits && (len(got.Start) != 1 || got.Start[0].Backoff != r.next):
				t.Errorf("starts %v, want one with backoff %v", got.Start, r.next)
			}
		})
	}
}

// TestBackoffSequence lets a container crash after a second again and again,
// each start following the plan to the second.
func TestBackoffSequence(t *testing.T) {
	at, last := now, container.Container{}
	var waits []time.Duration
	for n := range 9 {
		parts := []any{ready("s0", 0), running("b0", "b")}
		if n > 0 {
			parts = append(parts, last)
		}
		got := Sync(Input{Pod: basePod(), Observed: observed(parts...), Now: at, Hash: hashOf})
		if len(got.Waiting) > 0 {
			waits = append(waits, got.Next.Sub(last.FinishedAt))
			at = got.Next
			got = Sync(Input{Pod: basePod(), Observed: observed(parts...), Now: at, Hash: hashOf})
		}
		if len(got.Start) != 1 {
			t.Fatalf("attempt %d: starts %v", n, got.Start)
		}
		last = exited("a", "a", 1, count(got.Start[0].RestartCount), backoff(got.Start[0].Backoff))
		last.StartedAt, last.FinishedAt = at, at.Add(time.Second)
		at = at.Add(time.Second)
	}
	want := []time.Duration{10e9, 20e9, 40e9, 80e9, 160e9, 300e9, 300e9}
	if d := gocmp.Diff(want, waits); d != "" {
		t.Errorf("waits (-want +got):\n%s", d)
	}
}
