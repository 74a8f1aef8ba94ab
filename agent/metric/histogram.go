package metric

// bounds are the upper bounds of a Histogram's buckets in seconds, those that
// Prometheus' client libraries and so the kubelet have by default.
var bounds = [...]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Histogram counts durations by how long they were. The zero Histogram is
// ready; its methods are not for use at once.
type Histogram struct {
	counts [len(bounds) + 1]uint64 // each without those below
	sum    float64
}

// Observe counts a duration in seconds.
func (h *Histogram) Observe(seconds float64) {
	i := 0
	for i < len(bounds) && seconds > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += seconds
}
