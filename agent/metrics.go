package agent

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/server/stats"
)

// writeMetrics writes what Prometheus is told of the agent: the names that
// kubernetes-mixin's dashboards and alerts know of a kubelet, as far as there
// is something to tell, and those of tinylet. Everything is counted where it
// happens, and nothing is asked for elsewhere but of /proc. It fails where w
// does, or ctx has ended.
func (p *parts) writeMetrics(ctx context.Context, w io.Writer) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("write the agent's metrics: %w", err)
	}
	out := metrics.NewStream(w)
	out.Family(metrics.KindGauge, "kubelet_node_name", "1, with the node's name.")
	out.Sample(1, metrics.AppendLabel(nil, "node", p.nodeName))
	p.countPods().write(out, p.cluster != nil)
	if p.runtime != nil {
		p.runtime.WriteMetrics(out)
	}
	p.pleg.WriteMetrics(out)
	p.workers.WriteMetrics(out)
	p.syncer.WriteMetrics(out)
	p.syncer.Volumes.WriteMetrics(out)
	p.cpus.WriteMetrics(out)
	if err := p.writeClaims(ctx, out); err != nil {
		return fmt.Errorf("write the agent's metrics: %w", err)
	}
	if p.cluster != nil {
		writeCertificates(out, p.cluster.identity.Stats(), time.Now())
		p.cluster.meter.WriteMetrics(out)
	}
	stats.WriteBuildInfo(out)
	stats.WriteProcess(out)
	return out.Flush()
}

// teller writes how the calls to the runtime went. The driver for CRI does; a
// runtime of tests may not.
type teller interface{ WriteMetrics(out *metrics.Stream) }

// writeCertificates writes how the node's certificates stand. Without one the
// time that is left is without end, as upstream has it.
func writeCertificates(out *metrics.Stream, s identity.Stats, now time.Time) {
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

// total is the sum of all rows.
func total(rows []apiclient.Traffic) (sent, received uint64) {
	for _, t := range rows {
		sent += t.Sent
		received += t.Received
	}
	return sent, received
}

// writeProbes writes how probes went.
func (p *parts) writeProbes(_ context.Context, w io.Writer) error {
	counts := p.probes.Counts()
	probes := make([]stats.Probe, len(counts))
	for i := range counts {
		c := &counts[i]
		probes[i] = stats.Probe{
			Kind: c.Kind, Namespace: c.Pod.Namespace, Pod: c.Pod.Name, PodUID: string(c.Pod.UID), Container: c.Container,
			Successful: c.Successful, Failed: c.Failed, Durations: c.Durations,
		}
	}
	return stats.WriteProbes(w, probes)
}
