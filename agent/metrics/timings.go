package metrics

import (
	"sync"
	"time"
)

// Timing counts how long operations of one kind took. The zero value has the
// default bounds and is ready, and all methods may be called at once.
type Timing struct {
	mu     sync.Mutex
	errors uint64
	took   Histogram
}

// NewTiming makes a Timing with these bounds, as Histogram has them.
func NewTiming(bounds []float64) *Timing { return &Timing{took: Histogram{Bounds: bounds}} }

// Observe counts an operation, and whether it failed.
func (t *Timing) Observe(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took.Observe(took.Seconds())
	if err != nil {
		t.errors++
	}
}

// Timings are a Timing for each operation, told apart by the labels of its
// samples. The zero value has the default bounds and is ready, and all methods
// may be called at once. Nothing is dropped: labels are for what has few
// values. A row takes some 100 bytes and 8 for each bound.
type Timings struct {
	rows   rows[Timing]
	bounds []float64
}

// NewTimings makes Timings with these bounds, as Histogram has them.
func NewTimings(bounds []float64) *Timings { return &Timings{bounds: bounds} }

// Observe counts an operation with these labels, as AppendLabel makes them,
// and whether it failed. The labels are not kept.
func (t *Timings) Observe(labels []byte, took time.Duration, err error) {
	t.rows.of(labels, t.begin).Observe(took, err)
}

// begin makes a new row ready.
func (t *Timings) begin(row *Timing) { row.took.Bounds = t.bounds }

// Timing adds the samples of a histogram's family.
func (s *Stream) Timing(t *Timing, labels ...[]byte) {
	s.read(t)
	s.histogram(&s.scratch, nil, labels)
}

// Timings adds the samples of a histogram's family, each with labels of its
// own and those that are given.
func (s *Stream) Timings(t *Timings, labels ...[]byte) {
	for _, r := range t.rows.all() {
		s.read(&r.value)
		s.histogram(&s.scratch, r.labels, labels)
	}
}

// Totals adds how many operations there were, failed ones included, as samples
// of a counter's family.
func (s *Stream) Totals(t *Timings, labels ...[]byte) {
	for _, r := range t.rows.all() {
		s.read(&r.value)
		s.sample(float64(s.scratch.Count()), r.labels, labels)
	}
}

// Failures adds how many operations failed, where one did, as samples of a
// counter's family.
func (s *Stream) Failures(t *Timings, labels ...[]byte) {
	for _, r := range t.rows.all() {
		if n := s.read(&r.value); n > 0 {
			s.sample(float64(n), r.labels, labels)
		}
	}
}

// read takes a Timing in as it is, and answers how many operations failed: a
// slow reader of the text holds up nobody who counts.
func (s *Stream) read(t *Timing) (failed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.scratch.take(&t.took)
	return t.errors
}
