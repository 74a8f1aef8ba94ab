package metrics

import (
	"bytes"
	"slices"
	"sync"
)

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
