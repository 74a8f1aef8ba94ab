package metrics

import (
	"sync"
	"time"
)

// Timing is a histogram of the durations of one operation, and a count of its
// errors. The zero value is ready to use and has the default bounds. All methods
// are safe for concurrent use.
type Timing struct {
	mu     sync.Mutex
	errors uint64
	took   Histogram
}

// NewTiming returns a Timing with these bounds, as in Histogram.Bounds.
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

// Timings is a set of Timing, one for each operation, by the labels of their
// samples. The zero value is ready to use and has the default bounds. All methods
// are safe for concurrent use. Rows are never removed: use labels with few values
// only. A row takes some 100 bytes and 8 for each bound.
type Timings struct {
	rows   rows[Timing]
	bounds []float64
}

// NewTimings returns Timings with these bounds, as in Histogram.Bounds.
func NewTimings(bounds []float64) *Timings { return &Timings{bounds: bounds} }

// Observe counts an operation with these labels, in the form of AppendLabel, and
// whether it failed. It does not retain labels.
func (t *Timings) Observe(labels []byte, took time.Duration, err error) {
	t.rows.of(labels, t.begin).Observe(took, err)
}

// begin initializes a new row.
func (t *Timings) begin(row *Timing) { row.took.Bounds = t.bounds }

// Timing adds the samples of t to a histogram family.
func (s *Stream) Timing(t *Timing, labels ...[]byte) {
	s.read(t)
	s.histogram(&s.scratch, nil, labels)
}

// Timings adds the samples of t to a histogram family, each with its own labels
// and the given ones.
func (s *Stream) Timings(t *Timings, labels ...[]byte) {
	for _, r := range t.rows.all() {
		s.read(&r.value)
		s.histogram(&s.scratch, r.labels, labels)
	}
}

// Totals adds the numbers of operations, failed ones included, to a counter
// family.
func (s *Stream) Totals(t *Timings, labels ...[]byte) {
	for _, r := range t.rows.all() {
		s.read(&r.value)
		s.sample(float64(s.scratch.Count()), r.labels, labels)
	}
}

// Failures adds the numbers of failed operations to a counter family. Operations
// that never failed have no sample.
func (s *Stream) Failures(t *Timings, labels ...[]byte) {
	for _, r := range t.rows.all() {
		if n := s.read(&r.value); n > 0 {
			s.sample(float64(n), r.labels, labels)
		}
	}
}

// read copies t to s.scratch and returns how many operations failed. With the copy
// a slow scraper does not block Observe.
func (s *Stream) read(t *Timing) (failed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.scratch.take(&t.took)
	return t.errors
}
