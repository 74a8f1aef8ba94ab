package metrics

import "sync/atomic"

// Counts are numbers that only grow, by the labels of their samples. The zero
// value is ready, and all methods may be called at once. Nothing is dropped:
// labels are for what has few values.
type Counts struct {
	rows rows[atomic.Uint64]
}

// Add adds n to the number with these labels, as AppendLabel makes them.
func (c *Counts) Add(n uint64, labels []byte) { c.rows.of(labels, nil).Add(n) }

// Counts adds the samples of c, each with labels of its own and those that are
// given.
func (s *Stream) Counts(c *Counts, labels ...[]byte) {
	for _, r := range c.rows.all() {
		s.sample(float64(r.value.Load()), r.labels, labels)
	}
}
