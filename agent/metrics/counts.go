package metrics

import "sync/atomic"

// CounterVec is a set of counters, by the labels of their samples. The zero value is
// ready to use. All methods are safe for concurrent use. Counters are never
// removed: use labels with few values only.
type CounterVec struct {
	rows vec[atomic.Uint64]
}

// Add adds n to the counter with these labels, in the form of AppendLabel. It does
// not retain labels.
func (c *CounterVec) Add(n uint64, labels []byte) { c.rows.getOrCreate(labels, nil).Add(n) }

// CounterVec adds the samples of c, each with its own labels and the given ones.
func (s *Stream) CounterVec(c *CounterVec, labels ...[]byte) {
	for _, r := range c.rows.all() {
		s.sample(float64(r.value.Load()), r.labels, labels)
	}
}
