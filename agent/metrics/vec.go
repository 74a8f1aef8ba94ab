package metrics

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
)

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

// vec is a set of values, by the labels of their samples. A row is never moved or
// removed, and lookups do not allocate.
type vec[T any] struct {
	mu   sync.Mutex
	list []*row[T] // by labels; never changed, only replaced by a longer one
}

type row[T any] struct {
	labels []byte // in the form of AppendLabel
	value  T
}

// getOrCreate returns the row with these labels. It creates a missing row and initializes
// it with init, if init is not nil. It does not retain labels.
func (r *vec[T]) getOrCreate(labels []byte, init func(*T)) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, end := 0, len(r.list)
	for i < end { // not slices.BinarySearchFunc: the labels would escape to the heap
		middle := int(uint(i+end) / 2)
		switch bytes.Compare(r.list[middle].labels, labels) {
		case 0:
			return &r.list[middle].value
		case -1:
			i = middle + 1
		default:
			end = middle
		}
	}
	added := &row[T]{labels: bytes.Clone(labels)}
	if init != nil {
		init(&added.value)
	}
	r.list = slices.Insert(slices.Clip(slices.Clone(r.list)), i, added)
	return &added.value
}

// all returns the current rows. The caller must not change the slice.
func (r *vec[T]) all() []*row[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}
