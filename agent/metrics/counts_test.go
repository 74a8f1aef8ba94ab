package metrics

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

var errBroken = errors.New("the reader went away")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// text returns what tell writes, checked by metricstest.
func text(t *testing.T, tell func(*Stream)) string {
	t.Helper()
	var out bytes.Buffer
	s := NewStream(&out)
	tell(s)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if problems := metricstest.Problems(out.Bytes()); len(problems) > 0 {
		t.Errorf("%q in\n%s", problems, out.Bytes())
	}
	return out.String()
}

func verb(v string) []byte { return AppendLabel(nil, "verb", v) }

func TestCounts(t *testing.T) {
	var c CounterVec
	tell := func(s *Stream) {
		s.Family(KindCounter, "a_total", "A.")
		s.CounterVec(&c, AppendLabel(nil, "host", "h"))
	}
	if got := text(t, tell); got != "" {
		t.Errorf("before anything was counted: %q", got)
	}
	labels := verb("get")
	c.Add(2, labels)
	copy(labels, `gone="x`) // the labels are the caller's again
	for _, v := range []string{"put", "get", "delete", "get"} {
		c.Add(1, verb(v))
	}
	want := `# HELP a_total A.
# TYPE a_total counter
a_total{verb="delete",host="h"} 1
a_total{verb="get",host="h"} 4
a_total{verb="put",host="h"} 1
`
	if diff := cmp.Diff(want, text(t, tell)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestTimings(t *testing.T) {
	timings := NewTimingVec([]float64{1, 60})
	timings.Observe(verb("put"), 2*time.Minute, nil)
	timings.Observe(verb("get"), time.Second, nil)
	timings.Observe(verb("get"), time.Second+1, errBroken)
	want := `# HELP a_total A.
# TYPE a_total counter
a_total{verb="get"} 2
a_total{verb="put"} 1
# HELP a_errors_total E.
# TYPE a_errors_total counter
a_errors_total{verb="get"} 1
# HELP a_seconds S.
# TYPE a_seconds histogram
a_seconds_bucket{verb="get",le="1"} 1
a_seconds_bucket{verb="get",le="60"} 2
a_seconds_bucket{verb="get",le="+Inf"} 2
a_seconds_sum{verb="get"} 2.000000001
a_seconds_count{verb="get"} 2
a_seconds_bucket{verb="put",le="1"} 0
a_seconds_bucket{verb="put",le="60"} 0
a_seconds_bucket{verb="put",le="+Inf"} 1
a_seconds_sum{verb="put"} 120
a_seconds_count{verb="put"} 1
`
	got := text(t, func(s *Stream) {
		s.Family(KindCounter, "a_total", "A.")
		s.Totals(timings)
		s.Family(KindCounter, "a_errors_total", "E.")
		s.Errors(timings)
		s.Family(KindHistogram, "a_seconds", "S.")
		s.TimingVec(timings)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// A histogram without labels is written from the start, as upstream's are, and
// reading one histogram does not affect the next.
func TestTiming(t *testing.T) {
	var none Timing
	some := NewTiming([]float64{0.5})
	some.Observe(time.Second, nil)
	want := `# HELP b_seconds B.
# TYPE b_seconds histogram
b_seconds_bucket{le="0.5"} 0
b_seconds_bucket{le="+Inf"} 1
b_seconds_sum 1
b_seconds_count 1
# HELP c_seconds C.
# TYPE c_seconds histogram
c_seconds_bucket{x="y",le="0.005"} 0
`
	got := text(t, func(s *Stream) {
		s.Family(KindHistogram, "b_seconds", "B.")
		s.Timing(some)
		s.Family(KindHistogram, "c_seconds", "C.")
		s.Timing(&none, AppendLabel(nil, "x", "y"))
	})
	if diff := cmp.Diff(want, got[:min(len(got), len(want))]); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if lines := bytes.Count([]byte(got), []byte{'\n'}); lines != 6+2+14 {
		t.Errorf("%d lines:\n%s", lines, got)
	}
}

func TestClone(t *testing.T) {
	h := Histogram{Bounds: []float64{1}}
	h.Observe(1)
	c := h.Clone()
	h.Observe(3)
	if h.Count() != 2 || c.Count() != 1 || c.sum != 1 || len(c.limits()) != 1 {
		t.Errorf("%+v and its clone %+v", h, c)
	}
}

func TestCountingAtOnce(t *testing.T) {
	var counts CounterVec
	var timing Timing
	timings := NewTimingVec(nil)
	verbs := [][]byte{verb("a"), verb("b"), verb("c"), verb("d"), verb("e")}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 500 {
				labels := verbs[(n+i)%len(verbs)]
				counts.Add(1, labels)
				timings.Observe(labels, time.Millisecond, errBroken)
				timing.Observe(time.Millisecond, nil)
			}
		})
		wg.Go(func() {
			for range 20 {
				_ = text(t, func(s *Stream) {
					s.Family(KindCounter, "a_total", "A.")
					s.CounterVec(&counts)
					s.Family(KindHistogram, "a_seconds", "S.")
					s.TimingVec(timings)
					s.Family(KindHistogram, "b_seconds", "S.")
					s.Timing(&timing)
				})
			}
		})
	}
	wg.Wait()
	for _, r := range counts.rows.all() {
		if n := r.value.Load(); n != 400 {
			t.Errorf("%s: %d", r.labels, n)
		}
	}
	for _, r := range timings.rows.all() {
		if r.value.durations.Count() != 400 || r.value.errors != 400 {
			t.Errorf("%s: %d, %d errors", r.labels, r.value.durations.Count(), r.value.errors)
		}
	}
	if n := timing.durations.Count(); n != 2000 {
		t.Errorf("%d observed", n)
	}
}

// Counting in an existing row does not allocate.
func TestCountingTakesNoMemory(t *testing.T) {
	var counts CounterVec
	var timing Timing
	timings := NewTimingVec(nil)
	s := NewStream(io.Discard)
	for name, count := range map[string]func(){
		"counts": func() {
			var room [64]byte
			counts.Add(1, AppendLabel(room[:0], "verb", "get"))
		},
		"timings": func() {
			var room [64]byte
			timings.Observe(AppendLabel(room[:0], "verb", "get"), time.Second, nil)
		},
		"timing": func() { timing.Observe(time.Second, nil) },
		"telling": func() {
			s.Family(KindHistogram, "a_seconds", "S.")
			s.TimingVec(timings)
			s.Totals(timings)
			s.CounterVec(&counts)
		},
	} {
		if n := testing.AllocsPerRun(100, count); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	timings := NewTimingVec(nil)
	for _, v := range []string{"exec_sync", "list_containers", "list_podsandbox", "status", "version", "podsandbox_status"} {
		timings.Observe(verb(v), 0, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		var room [64]byte
		timings.Observe(AppendLabel(room[:0], "verb", "list_podsandbox"), 3*time.Millisecond, nil)
	}
}
