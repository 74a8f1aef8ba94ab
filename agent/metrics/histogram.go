package metrics

// bounds are the upper bounds of a Histogram's buckets in seconds, those that
// Prometheus' client libraries and so the kubelet have by default.
var bounds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Histogram counts durations by how long they were. The zero Histogram is
// ready; its methods are not for use at once, and a copy of it counts on in
// the same buckets.
type Histogram struct {
	// Bounds are the buckets' upper bounds in seconds, the least first; nil
	// are those that the kubelet has by default. They are set before anything
	// is observed, and shared.
	Bounds []float64

	counts []uint64 // each without those below; nil before the first
	sum    float64
}

// Observe counts a duration in seconds.
func (h *Histogram) Observe(seconds float64) {
	limits := h.limits()
	if h.counts == nil {
		h.counts = make([]uint64, len(limits)+1)
	}
	i := 0
	for i < len(limits) && seconds > limits[i] {
		i++
	}
	h.counts[i]++
	h.sum += seconds
}

// Count is how many durations were observed.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.counts {
		n += c
	}
	return n
}

// Clone is a copy that nobody else counts in.
func (h *Histogram) Clone() *Histogram {
	c := new(Histogram)
	c.take(h)
	return c
}

// take makes h what other is, in the memory that h has.
func (h *Histogram) take(other *Histogram) {
	h.Bounds, h.sum = other.Bounds, other.sum
	h.counts = append(h.counts[:0], other.counts...)
}

func (h *Histogram) limits() []float64 {
	if h.Bounds == nil {
		return bounds
	}
	return h.Bounds
}
