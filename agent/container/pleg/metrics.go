package pleg

import "github.com/tinylet/tinylet/agent/metrics"

// WriteMetrics writes the metrics of relists under the kubelet's names
// (pkg/kubelet/metrics). Relists are rare, so kubelet_pleg_last_seen_seconds
// shows whether the runtime is being watched: it is the time of the runtime's
// last response or event, and at most about a minute old while the runtime
// responds.
func (p *PLEG) WriteMetrics(out *metrics.Stream) {
	out.Family(metrics.KindHistogram, "kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG.")
	out.Timing(&p.relistDurations)
	out.Family(metrics.KindHistogram, "kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.")
	out.Timing(&p.relistIntervals)
	p.mu.Lock()
	lastSeen := p.lastSeen
	p.mu.Unlock()
	if !lastSeen.IsZero() {
		out.Family(metrics.KindGauge, "kubelet_pleg_last_seen_seconds", "Timestamp in seconds of the container runtime's last response or event.")
		out.Sample(float64(lastSeen.Unix()))
	}
}
