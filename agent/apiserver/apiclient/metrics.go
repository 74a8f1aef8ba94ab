package apiclient

import (
	"strconv"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
)

// requestBounds are the buckets of the kubelet's
// rest_client_request_duration_seconds
// (component-base/metrics/prometheus/restclient).
var requestBounds = []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}

// requests holds the results and durations of requests by labels.
type requests struct {
	results metrics.CounterVec
	took    *metrics.TimingVec
}

// exchange is one attempt of a request.
type exchange struct {
	counted      *requests
	method, host string
	begun        time.Time
}

// answered counts an attempt by its status code; 0 means no response. All attempts
// without a response have one label value, to bound the number of series.
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

// over observes the duration until the response was read completely.
func (e *exchange) over() {
	var room [160]byte
	labels := metrics.AppendLabel(room[:0], "host", e.host)
	e.counted.took.Observe(metrics.AppendLabel(labels, "verb", e.method), time.Since(e.begun), nil)
}

// WriteMetrics writes the bytes on the wire, and the results of requests under the
// names that client-go's metrics have in a kubelet. Watches count as requests but
// have no duration: it depends on their caller.
func (m *Meter) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindCounter, "tinylet_api_bytes_total", "Bytes sent to and received from API servers. Bytes outside of request"+
		" and response bodies (TLS, HTTP headers and frames, pings) have the verb and the resource connection.")
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
		return // no request yet
	}
	out.Family(metrics.KindCounter, "rest_client_requests_total", "Requests to API servers by status code, method and host.")
	out.CounterVec(&counted.results)
	out.Family(metrics.KindHistogram, "rest_client_request_duration_seconds", "Duration of requests to API servers in seconds, by verb and host.")
	out.TimingVec(counted.took)
}

var (
	sent     = metrics.AppendLabel(nil, "direction", "sent")
	received = metrics.AppendLabel(nil, "direction", "received")
)
