package agent

import (
	"github.com/tinylet/tinylet/agent/apiclient"
	"github.com/tinylet/tinylet/agent/metric"
)

// metrics are what Prometheus is told of the agent.
func (p *parts) metrics() []*metric.Family {
	if p.cluster == nil {
		return nil
	}
	return []*metric.Family{apiBytes(p.cluster.meter.Traffic())}
}

// apiBytes are the bytes between the agent and API servers.
func apiBytes(rows []apiclient.Traffic) *metric.Family {
	f := metric.Counter("tinylet_api_bytes_total",
		"Bytes to and from API servers. What is of no request's body (TLS, headers and frames of HTTP, pings) has the verb and the resource connection.",
		"direction", "verb", "resource")
	for _, t := range rows {
		f.Add(float64(t.Sent), "sent", t.Verb, t.Resource)
		f.Add(float64(t.Received), "received", t.Verb, t.Resource)
	}
	return f
}

// total is the sum of all rows.
func total(rows []apiclient.Traffic) (sent, received uint64) {
	for _, t := range rows {
		sent += t.Sent
		received += t.Received
	}
	return sent, received
}
