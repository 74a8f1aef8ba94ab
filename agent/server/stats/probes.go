package stats

import (
	"io"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/podworker/probe"
)

// WriteProbes writes the text of /metrics/probes (prober_manager.go and
// worker.go in pkg/kubelet/prober). A result that has not occurred has no
// sample. The probes must not change during the call.
func WriteProbes(w io.Writer, probes []probe.Count) error {
	out := metrics.NewStream(w)
	out.Family(metrics.KindCounter, "prober_probe_total", "Cumulative number of probes of a container by result.")
	var labels []byte
	for i := range probes {
		p := &probes[i]
		for _, r := range [...]struct {
			name  string
			count uint64
		}{{"successful", p.Successful}, {"failed", p.Failed}} {
			if r.count > 0 {
				labels = metrics.AppendLabel(probeLabels(p, labels[:0]), "pod_uid", string(p.Pod.UID))
				out.Sample(float64(r.count), metrics.AppendLabel(labels, "result", r.name))
			}
		}
	}
	out.Family(metrics.KindHistogram, "prober_probe_duration_seconds", "Duration in seconds of probes.")
	for i := range probes {
		if p := &probes[i]; p.Durations != nil {
			labels = probeLabels(p, labels[:0])
			out.Histogram(p.Durations, labels)
		}
	}
	return out.Flush()
}

func probeLabels(p *probe.Count, to []byte) []byte {
	to = metrics.AppendLabel(to, "container", p.Container)
	to = metrics.AppendLabel(to, "namespace", p.Pod.Namespace)
	to = metrics.AppendLabel(to, "pod", p.Pod.Name)
	return metrics.AppendLabel(to, "probe_type", p.Kind)
}
