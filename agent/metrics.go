package agent

import (
	"context"
	"fmt"
	"io"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/server/stats"
)

// writeMetrics writes the agent's metrics: those of the kubelet that kubernetes-mixin's
// dashboards and alerts select, as far as the agent has them, and those of tinylet. It reads
// counters and /proc only. It fails if w does, or if ctx has ended.
func (a *agent) writeMetrics(ctx context.Context, w io.Writer) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("write the agent's metrics: %w", err)
	}
	out := metrics.NewStream(w)
	out.Family(metrics.KindGauge, "kubelet_node_name", "1, with the node's name.")
	out.Sample(1, metrics.AppendLabel(nil, "node", a.cfg.NodeName))
	stats.WritePodCounts(out, a.statuses.List(), a.cluster != nil)
	if m, ok := a.runtime.(metricsWriter); ok {
		m.WriteMetrics(out)
	}
	a.pleg.WriteMetrics(out)
	a.workers.WriteMetrics(out)
	a.syncer.WriteMetrics(out)
	a.volumes.WriteMetrics(out)
	a.cpus.WriteMetrics(out)
	if err := a.disks.WriteClaimMetrics(ctx, out, a.statuses.List()); err != nil {
		return fmt.Errorf("write the agent's metrics: %w", err)
	}
	if a.cluster != nil {
		a.cluster.identity.WriteMetrics(out)
		a.cluster.meter.WriteMetrics(out)
	}
	stats.WriteBuildInfo(out)
	stats.WriteProcess(out)
	return out.Flush()
}

// metricsWriter is implemented by runtimes that count their calls, such as the CRI driver.
type metricsWriter interface{ WriteMetrics(out *metrics.Stream) }

func (a *agent) writeProbes(_ context.Context, w io.Writer) error {
	return stats.WriteProbes(w, a.probes.Counts())
}
