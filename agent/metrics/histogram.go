package metrics

import "slices"

// defaultBounds are the default upper bounds of a Histogram's buckets in seconds. They
// are the defaults of Prometheus' client libraries, and so of the kubelet.
var defaultBounds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Histogram is a histogram of durations. The zero value is ready to use. Its
// methods are not safe for concurrent use. A copy shares the buckets: use Clone.
type Histogram struct {
	// Bounds are the buckets' upper bounds in seconds, ascending. Nil means
	// defaultBounds. Set Bounds before the first Observe. The slice
	// may be shared and must not be changed.
	Bounds []float64

	counts []uint64 // by bucket, not cumulative; nil before the first Observe
	sum    float64
}

// Observe counts a duration in seconds.
func (h *Histogram) Observe(seconds float64) {
	limits := h.limits()
	if h.counts == nil {
		h.counts = make([]uint64, len(limits)+1)
	}
	i, _ := slices.BinarySearch(limits, seconds)
	h.counts[i]++
	h.sum += seconds
}

// Count returns how many durations were observed.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.counts {
		n += c
	}
	return n
}

// Clone returns an independent copy.
func (h *Histogram) Clone() *Histogram {
	c := new(Histogram)
	c.copyFrom(h)
	return c
}

// copyFrom makes h a copy of other, and reuses the memory of h.
func (h *Histogram) copyFrom(other *Histogram) {
	h.Bounds, h.sum = other.Bounds, other.sum
	h.counts = append(h.counts[:0], other.counts...)
}

func (h *Histogram) limits() []float64 {
	if h.Bounds == nil {
		return defaultBounds
	}
	return h.Bounds
}
