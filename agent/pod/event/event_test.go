package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/pod"
)

// logged is a recorder and its log.
func logged() (*Recorder, *bytes.Buffer) {
	var out bytes.Buffer
	return NewRecorder(slog.New(slog.NewTextHandler(&out, nil))), &out
}

func ref(name string) pod.Ref {
	return pod.Ref{UID: "u", Namespace: "default", Name: name}
}

// shown is a short form of an event.
func shown(events []Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s %s: %s x%d", e.Pod.Name, e.Type[:1], e.Reason, e.Message, e.Count))
	}
	return out
}

func TestEventsAreCountedAndSeldomLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, out := logged()
		for range 180 { // half an hour
			r.Warning(ref("web"), "Failed", "no coffee")
			time.Sleep(10 * time.Second)
		}
		r.Normal(ref("web"), "Started", "Started container c")
		events := r.Recent()
		if len(events) != 2 || events[0].Count != 180 || events[0].Last.Sub(events[0].First) != 1790*time.Second || events[1].Reason != "Started" {
			t.Errorf("events: %+v", events)
		}
		if n := strings.Count(out.String(), "no coffee"); n != 3 {
			t.Errorf("logged %d times in half an hour, want 3:\n%s", n, out.String())
		}
	})
}

func TestOldEventsAreForgotten(t *testing.T) {
	r, _ := logged()
	for i := range 2 * maxEvents {
		r.Normal(ref(fmt.Sprint(i)), "R", fmt.Sprint(i))
	}
	events := r.Recent()
	if len(events) != maxEvents || events[0].Message != fmt.Sprint(maxEvents) || events[maxEvents-1].Message != fmt.Sprint(2*maxEvents-1) {
		t.Errorf("%d events from %s to %s", len(events), events[0].Message, events[len(events)-1].Message)
	}
}

func TestSimilarEventsAreCombined(t *testing.T) {
	type step struct {
		wait    time.Duration
		message string
	}
	many := func(n int, wait time.Duration) (out []step) {
		for i := range n {
			out = append(out, step{wait, fmt.Sprint("m", i)})
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		steps []step
		// want is the last events; all is how many there are.
		want []string
		all  int
	}{
		{"few stay apart", many(10, time.Second), []string{"a W Failed: m9 x1"}, 10},
		{"the next one is combined", many(11, time.Second), []string{"a W Failed: m9 x1", "a W Failed: (combined from similar events): m10 x1"}, 11},
		{"and counted, with its newest message", many(20, time.Second), []string{"a W Failed: (combined from similar events): m19 x10"}, 11},
		{
			"one that is known is counted as itself", append(many(12, time.Second), step{time.Second, "m3"}),
			[]string{"a W Failed: (combined from similar events): m11 x2", "a W Failed: m3 x2"}, 11,
		},
		{"slow ones stay apart", many(15, 2*time.Minute), []string{"a W Failed: m14 x1"}, 15},
		{
			"they go on to be combined as long as they come", append(many(11, 30*time.Second), step{9 * time.Minute, "x"}, step{9 * time.Minute, "y"}),
			[]string{"a W Failed: (combined from similar events): y x3"}, 11,
		},
		{
			"after a pause they stand alone", append(many(11, time.Second), step{11 * time.Minute, "x"}),
			[]string{"a W Failed: (combined from similar events): m10 x1", "a W Failed: x x1"}, 12,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, out := logged()
				for i, s := range tc.steps {
					time.Sleep(s.wait)
					r.Warning(ref("a"), "Failed", s.message)
					if i == 0 { // what differs in anything is not similar
						r.Normal(ref("a"), "Failed", "other type")
						r.Warning(ref("a"), "Other", "other reason")
						r.Warning(ref("b"), "Failed", "other pod")
					}
				}
				got := shown(r.Recent())
				if len(got) != tc.all+3 {
					t.Errorf("%d events, want %d", len(got), tc.all+3)
				}
				if diff := cmp.Diff(tc.want, got[len(got)-len(tc.want):]); diff != "" {
					t.Errorf("last events (-want +got):\n%s", diff)
				}
				if n := strings.Count(out.String(), "combined"); n > 2 {
					t.Errorf("combined ones were logged %d times", n)
				}
			})
		})
	}
}

// A pod with an endless number of different events fills neither the ring nor the
// log, and the events of other pods stay.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, out := logged()
		r.Normal(ref("quiet"), "Started", "Started container c")
		for i := range 6 * 3600 {
			r.Warning(ref("broken"), fmt.Sprint("R", i), "message")
			r.Normal(ref("broken"), fmt.Sprint("R", i), "message")
			time.Sleep(time.Second)
		}
		r.Normal(ref("quiet"), "Killing", "Stopping container c")
		events := r.Recent()
		if len(events) > maxEventsPerPod+2 || events[0].Pod.Name != "quiet" {
			t.Errorf("%d events, the first of pod %s", len(events), events[0].Pod.Name)
		}
		dropped := 0
		for _, e := range events {
			if e.Reason == reasonDropped {
				dropped += e.Count
			}
		}
		// Of each type, 25 and then one in five minutes are kept.
		if want := 2 * (6*3600 - 25 - 6*12); dropped < want-4 || dropped > want+4 {
			t.Errorf("%d events dropped, want %d", dropped, want)
		}
		if lines := strings.Count(out.String(), "\n"); lines > 2*(25+6*12+6*6+1)+2 {
			t.Errorf("%d lines logged in six hours", lines)
		}
	})
}

func TestARepeatedEventCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := logged()
		for range 1000 {
			r.Normal(ref("a"), "Pulled", "image is there")
			r.Warning(ref("a"), "BackOff", "back-off")
			time.Sleep(time.Minute)
		}
		r.Warning(ref("a"), "Failed", "something new")
		events := r.Recent()
		if len(events) != 3 || events[2].Reason != "Failed" {
			t.Errorf("events %q", shown(events))
		}
	})
}

func TestBucket(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, tc := range []struct {
		name  string
		after time.Duration
		want  int
	}{
		{"nothing yet", refill - 1, 3},
		{"one", refill, 4},
		{"one and a rest", refill + time.Second, 4},
		{"full", 22 * refill, burst},
		{"long full", 1<<63 - 1, burst},
		{"clock set back", -time.Hour, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := make(rateLimiter)
			for range burst - 3 {
				l.allow(ref("a"), "Normal", start)
			}
			got := 0
			for l.allow(ref("a"), "Normal", start.Add(tc.after)) && got <= burst {
				got++
			}
			if got != tc.want {
				t.Errorf("%d tokens, want %d", got, tc.want)
			}
		})
	}
}

func TestBucketsAreBounded(t *testing.T) {
	l := make(rateLimiter)
	now := time.Unix(1000, 0)
	for i := range 3 * maxBuckets {
		now = now.Add(time.Second)
		if !l.allow(ref(fmt.Sprint(i)), "Normal", now) {
			t.Fatal("a first event was refused")
		}
	}
	if len(l) != maxBuckets {
		t.Errorf("%d buckets", len(l))
	}
	if _, ok := l[bucketKey{ref(fmt.Sprint(3*maxBuckets - 1)), "Normal"}]; !ok {
		t.Error("the newest bucket was forgotten")
	}
	l.allow(ref("later"), "Normal", now.Add(24*time.Hour))
	if len(l) != 1 {
		t.Errorf("%d buckets after a day", len(l))
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	r, _ := logged()
	r.Warning(ref("a"), "Unhealthy", strings.Repeat("é", maxMessage))
	got := r.Recent()[0].Message
	if len(got) > maxMessage || len(got) < maxMessage-2 || !utf8.ValidString(got) || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-10:])
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := logged()
		r.Normal(ref("a"), "One", "")
		r.Normal(ref("a"), "Two", "")
		ctx, cancel := context.WithCancelCause(t.Context())
		var got []string
		hold := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- r.Watch(ctx, func(events []Event) error {
				got = append(got, shown(events)...)
				got = append(got, "-")
				<-hold
				return nil
			})
		}()
		synctest.Wait()
		for range 5 { // while it is slow
			r.Normal(ref("a"), "One", "")
		}
		r.Normal(ref("b"), "Three", "")
		hold <- struct{}{}
		hold <- struct{}{}
		synctest.Wait()
		r.Normal(ref("b"), "Three", "")
		hold <- struct{}{}
		why := errors.New("enough")
		cancel(why)
		if err := <-done; !errors.Is(err, why) {
			t.Errorf("Watch = %v", err)
		}
		want := []string{"a N One:  x1", "a N Two:  x1", "-", "a N One:  x6", "b N Three:  x1", "-", "b N Three:  x2", "-"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
		if len(r.subscribers) != 0 {
			t.Error("a watcher was left")
		}
	})
}

func TestWatchEndsWithItsHandler(t *testing.T) {
	r, _ := logged()
	broken := errors.New("broken")
	if err := r.Watch(t.Context(), func([]Event) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("Watch = %v", err)
	}
}

func TestNotify(t *testing.T) {
	r, _ := logged()
	slot := make(chan struct{}, 1)
	cancel := r.Subscribe(slot)
	for _, message := range []string{"a", "b", "b"} { // two find the slot full
		r.Normal(ref("x"), "One", message)
		if len(slot) != 1 {
			t.Fatalf("after %q the slot has %d", message, len(slot))
		}
	}
	<-slot
	r.Normal(ref("x"), "One", "b")
	if len(slot) != 1 {
		t.Error("an event that happens again wakes nobody")
	}
	<-slot
	cancel()
	r.Normal(ref("x"), "One", "c")
	if len(slot) != 0 {
		t.Error("woken after the end")
	}
}

func BenchmarkRepeated(b *testing.B) {
	r := NewRecorder(slog.New(slog.DiscardHandler))
	for i := range maxEvents {
		r.Normal(ref(fmt.Sprint(i)), "R", "m")
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Normal(ref("0"), "R", "m")
	}
}
