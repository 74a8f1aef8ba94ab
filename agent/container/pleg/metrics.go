package pleg

import "github.com/tinylet/tinylet/agent/metrics"

// WriteMetrics writes how relists went, under the kubelet's names
// (pkg/kubelet/metrics). Relists are rare here, so what tells that the runtime
// is watched is when it was last heard of, by whatever way: at least once a
// minute while it answers.
func (p *PLEG) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindHistogram, "kubelet_pleg_relist_duration_seconds", "How long it took to list what the container runtime holds.")
	out.Timing(&p.took)
	out.Family(metrics.KindHistogram, "kubelet_pleg_relist_interval_seconds", "Time between lists of what the container runtime holds.")
	out.Timing(&p.apart)
	p.mu.Lock()
	heard := p.heard
	p.mu.Unlock()
	if !heard.IsZero() {
		out.Family(metrics.KindGauge, "kubelet_pleg_last_seen_seconds", "When the container runtime was last heard of, in seconds since 1970.")
		out.Sample(float64(heard.Unix()))
	}
}
