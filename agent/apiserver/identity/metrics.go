package identity

import (
	"math"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
)

// WriteMetrics writes the metrics of the node's certificates under the kubelet's names.
func (id *Identity) WriteMetrics(out *metrics.Stream) { id.Stats().write(out, time.Now()) }

// write writes the metrics at a time. Without a certificate the remaining time is infinite,
// as upstream.
func (s Stats) write(out *metrics.Stream, now time.Time) {
	left := func(expiry time.Time) float64 {
		if expiry.IsZero() {
			return math.Inf(1)
		}
		return math.Trunc(expiry.Sub(now).Seconds())
	}
	out.Family(metrics.KindGauge, "kubelet_certificate_manager_client_ttl_seconds", "Seconds until the client certificate expires.")
	out.Sample(left(s.ClientExpiry))
	out.Family(metrics.KindCounter, "kubelet_certificate_manager_client_expiration_renew_errors", "Renewals of the client certificate that failed.")
	out.Sample(float64(s.ClientFailures))
	out.Family(metrics.KindGauge, "kubelet_certificate_manager_server_ttl_seconds", "Seconds until the serving certificate expires.")
	out.Sample(left(s.ServingExpiry))
	out.Family(metrics.KindCounter, "kubelet_server_expiration_renew_errors", "Renewals of the serving certificate that failed.")
	out.Sample(float64(s.ServingFailures))
}
