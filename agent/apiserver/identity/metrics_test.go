package identity

import (
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
)

func TestCertificateMetrics(t *testing.T) {
	now := time.Unix(1700000000, 0)
	stats := Stats{ClientExpiry: now.Add(90*time.Minute + time.Second/2), ServingExpiry: now.Add(-time.Hour), ClientFailures: 3, ServingFailures: 4}
	metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, func(out *metrics.Stream) { stats.write(out, now) }, "kubelet_certificate_manager_client_expiration_renew_errors: is a counter, but its name does not end in _total",
		"kubelet_server_expiration_renew_errors: is a counter, but its name does not end in _total"),
		"kubelet_certificate_manager_client_ttl_seconds 5400\n", "kubelet_certificate_manager_client_expiration_renew_errors 3\n",
		"kubelet_certificate_manager_server_ttl_seconds -3600\n", "kubelet_server_expiration_renew_errors 4\n")
}
