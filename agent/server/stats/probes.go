package stats

import (
	"io"

	"github.com/tinylet/tinylet/agent/metrics"
)

// Probe holds the results of one probe of a container.
type Probe struct {
	// Kind is Startup, Liveness or Readiness.
	Kind                              string
	Namespace, Pod, PodUID, Container string
	Successful, Failed, Unknown       uint64
	// Durations are those of probes whose result was not a failure, as
	// upstream; nil is none.
	Durations *metrics.Histogram
}

// WriteProbes writes the text of /metrics/probes (prober_manager.go and
// worker.go in pkg/kubelet/prober). A result that has not occurred has no
// sample. The probes must not change during the call.
func WriteProbes(w io.Writer, probes []Probe) error {
	out := metrics.NewStream(w)
	out.Family(metrics.KindCounter, "prober_probe_total", "Cumulative number of probes of a container by result.")
	var labels []byte
	for i := range probes {
		p := &probes[i]
		for _, r := range [...]struct {
			name  string
			count uint64
		}{{"successful", p.Successful}, {"failed", p.Failed}, {"unknown", p.Unknown}} {
			if r.count > 0 {
				labels = metrics.AppendLabel(p.labels(labels[:0]), "pod_uid", p.PodUID)
				out.Sample(float64(r.count), metrics.AppendLabel(labels, "result", r.name))
			}
		}
	}
	out.Family(metrics.KindHistogram, "prober_probe_duration_seconds", "Duration in seconds of probes.")
	for i := range probes {
		if p := &probes[i]; p.Durations != nil {
			labels = p.labels(labels[:0])
			out.Histogram(p.Durations, labels)
		}
	}
	return out.Flush()
}

func (p *Probe) labels(to []byte) []byte {
	to = metrics.AppendLabel(to, "container", p.Container)
	to = metrics.AppendLabel(to, "namespace", p.Namespace)
	to = metrics.AppendLabel(to, "pod", p.Pod)
	return metrics.AppendLabel(to, "probe_type", p.Kind)
}
