package metrics

import (
	"bytes"
	"slices"
	"sync"
)

// rows are values by the labels of their samples. A row stays where it is once
// it is made, and is found without memory being taken.
type rows[T any] struct {
	mu   sync.Mutex
	list []*row[T] // by labels; never changed, but replaced by a longer one
}

type row[T any] struct {
	labels []byte // as AppendLabel makes them
	value  T
}

// of is the row of these labels, which init makes ready if it is new. The
// labels are not kept.
func (r *rows[T]) of(labels []byte, init func(*T)) *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, end := 0, len(r.list)
	for i < end { // by hand: the labels would escape through a func
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

// all are the rows until now.
func (r *rows[T]) all() []*row[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}
