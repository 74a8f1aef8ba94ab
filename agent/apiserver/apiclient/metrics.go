package apiclient

import (
	"strconv"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
)

// requestBounds are those of the kubelet's rest_client_request_duration_seconds
// (component-base/metrics/prometheus/restclient).
var requestBounds = []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}

// requests are what became of requests, by labels.
type requests struct {
	results metrics.Counts
	took    *metrics.Timings
}

// exchange is one attempt of a request, from the moment that it was made.
type exchange struct {
	counted      *requests
	method, host string
	begun        time.Time
}

// answered counts an attempt by how it was answered, 0 for not at all. Other
// errors than the server's all count as one: there is no end of them.
func (e *exchange) answered(code int) {
	text := "<error>"
	if code != 0 {
		text = strconv.Itoa(code)
	}
	var room [160]byte
	labels := metrics.AppendLabel(room[:0], "code", text)
	labels = metrics.AppendLabel(labels, "host", e.host)
	e.counted.results.Add(1, metrics.AppendLabel(labels, "method", e.method))
}

// over counts how long it took until the last of the answer was read.
func (e *exchange) over() {
	var room [160]byte
	labels := metrics.AppendLabel(room[:0], "host", e.host)
	e.counted.took.Observe(metrics.AppendLabel(labels, "verb", e.method), time.Since(e.begun), nil)
}

// WriteMetrics writes what went over the wire, and what became of the requests
// under the names that client-go's have in a kubelet. Watches count as requests
// and have no duration: they end when somebody wants them to.
func (m *Meter) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindCounter, "tinylet_api_bytes_total", "Bytes to and from API servers. What is of no request's body"+
		" (TLS, headers and frames of HTTP, pings) has the verb and the resource connection.")
	var labels []byte
	for _, t := range m.Traffic() {
		labels = metrics.AppendLabel(metrics.AppendLabel(labels[:0], "verb", t.Verb), "resource", t.Resource)
		out.Sample(float64(t.Sent), sent, labels)
		out.Sample(float64(t.Received), received, labels)
	}
	m.mu.Lock()
	counted := m.requests
	m.mu.Unlock()
	if counted == nil {
		return // no request was made
	}
	out.Family(metrics.KindCounter, "rest_client_requests_total", "Requests to API servers by the answer's code, method and host.")
	out.Counts(&counted.results)
	out.Family(metrics.KindHistogram, "rest_client_request_duration_seconds", "How long requests to API servers took, by verb and host.")
	out.Timings(counted.took)
}

var (
	sent     = metrics.AppendLabel(nil, "direction", "sent")
	received = metrics.AppendLabel(nil, "direction", "received")
)
