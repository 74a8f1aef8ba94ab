package metrics

import (
	"sync"
	"time"
)

// Timing is a histogram of the durations of one operation, and a count of its
// errors. The zero value is ready to use and has the default bounds. All methods
// are safe for concurrent use.
type Timing struct {
	mu        sync.Mutex
	errors    uint64
	durations Histogram
}

// NewTiming returns a Timing with these bounds, as in Histogram.Bounds.
func NewTiming(bounds []float64) *Timing { return &Timing{durations: Histogram{Bounds: bounds}} }

// Observe counts an operation, and whether it failed.
func (t *Timing) Observe(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.durations.Observe(took.Seconds())
	if err != nil {
		t.errors++
	}
}

// TimingVec is a set of Timings, one for each operation, by the labels of their
// samples. The zero value is ready to use and has the default bounds. All methods
// are safe for concurrent use. Rows are never removed: use labels with few values
// only. A row takes some 100 bytes and 8 for each bound.
type TimingVec struct {
	rows   vec[Timing]
	bounds []float64
}

// NewTimingVec returns a TimingVec with these bounds, as in Histogram.Bounds.
func NewTimingVec(bounds []float64) *TimingVec { return &TimingVec{bounds: bounds} }

// Observe counts an operation with these labels, in the form of AppendLabel, and
// whether it failed. It does not retain labels.
func (t *TimingVec) Observe(labels []byte, took time.Duration, err error) {
	t.rows.getOrCreate(labels, t.initRow).Observe(took, err)
}

func (t *TimingVec) initRow(row *Timing) { row.durations.Bounds = t.bounds }

// Timing adds the samples of t to a histogram family.
func (s *Stream) Timing(t *Timing, labels ...[]byte) {
	s.copyTiming(t)
	s.histogram(&s.scratch, nil, labels)
}

// TimingVec adds the samples of t to a histogram family, each with its own labels
// and the given ones.
func (s *Stream) TimingVec(t *TimingVec, labels ...[]byte) {
	for _, r := range t.rows.all() {
		s.copyTiming(&r.value)
		s.histogram(&s.scratch, r.labels, labels)
	}
}

// Totals adds the numbers of operations, failed ones included, to a counter
// family.
func (s *Stream) Totals(t *TimingVec, labels ...[]byte) {
	for _, r := range t.rows.all() {
		s.copyTiming(&r.value)
		s.sample(float64(s.scratch.Count()), r.labels, labels)
	}
}

// Errors adds the numbers of failed operations to a counter family. Operations
// that never failed have no sample.
func (s *Stream) Errors(t *TimingVec, labels ...[]byte) {
	for _, r := range t.rows.all() {
		if n := s.copyTiming(&r.value); n > 0 {
			s.sample(float64(n), r.labels, labels)
		}
	}
}

// copyTiming copies the durations of t to s.scratch and returns how many operations
// failed. Because of the copy, a slow scraper does not block Observe.
func (s *Stream) copyTiming(t *Timing) (failed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.scratch.copyFrom(&t.durations)
	return t.errors
}
