package stats

import (
	"context"
	"io"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/cgroups"
)

// resourceParts are the parts of a cgroup that /metrics/resource reports.
const resourceParts = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartSwap

// family is a metric family whose samples are those of cgroups.
type family struct {
	kind       metrics.Kind
	name, help string
	value      func(*row) (value float64, ok bool)
}

// startFamily is the only one of /metrics/resource without timestamps.
const startFamily = "container_start_time_seconds"

// The metrics of /metrics/resource: of the node, of pods and of containers.
var (
	nodeFamilies = []family{
		{metrics.KindCounter, "node_cpu_usage_seconds_total", "Cumulative CPU time consumed by the node in core-seconds.", cpuSeconds},
		{metrics.KindGauge, "node_memory_working_set_bytes", "Current working set of the node in bytes.", workingSetBytes},
		{metrics.KindGauge, "node_swap_usage_bytes", "Current swap usage of the node in bytes.", swapBytes},
	}
	containerFamilies = []family{
		{metrics.KindGauge, startFamily, "Start time of the container since unix epoch in seconds.", startSeconds},
		{metrics.KindCounter, "container_cpu_usage_seconds_total", "Cumulative CPU time consumed by the container in core-seconds.", cpuSeconds},
		{metrics.KindGauge, "container_memory_working_set_bytes", "Current working set of the container in bytes.", workingSetBytes},
		{metrics.KindGauge, "container_swap_usage_bytes", "Current amount of the container swap usage in bytes.", swapBytes},
		{metrics.KindGauge, "container_swap_limit_bytes", "Current amount of the container swap limit in bytes, if there is one.", swapLimit},
	}
	podFamilies = []family{
		{metrics.KindCounter, "pod_cpu_usage_seconds_total", "Cumulative CPU time consumed by the pod in core-seconds.", cpuSeconds},
		{metrics.KindGauge, "pod_memory_working_set_bytes", "Current working set of the pod in bytes.", workingSetBytes},
		{metrics.KindGauge, "pod_swap_usage_bytes", "Current amount of the pod swap usage in bytes.", swapBytes},
	}
)

// WriteResource writes the text of /metrics/resource, which metrics-server
// reads. Incomplete containers are omitted, because metrics-server drops a
// whole pod if any sample names a container without CPU time or memory. If
// nothing can be read, the text reports a scrape error, as the kubelet's does.
// Errors are those of w.
func (s *Stats) WriteResource(ctx context.Context, w io.Writer) error {
	out := metrics.NewStream(w)
	g, err := s.collect(ctx, resourceParts)
	if err != nil {
		s.cfg.Log.Error("cannot collect stats for /metrics/resource", "node", s.cfg.Node, "error", err)
		g = &collected{readFailed: true}
	}
	s.labelResource(g)
	g.writeResource(out, nodeFamilies, (*row).isNode)
	g.writeResource(out, containerFamilies, func(r *row) bool { return r.container != nil && r.labels != nil })
	g.writeResource(out, podFamilies, func(r *row) bool { return r.pod != nil && r.container == nil })
	scrapeErrors(out, g.readFailed, "resource_scrape_error", "scrape_error")
	return out.Flush()
}

// scrapeErrors writes the metrics that report whether a scrape has failed.
func scrapeErrors(out *metrics.Stream, failed bool, names ...string) {
	value := 0.0
	if failed {
		value = 1
	}
	for _, name := range names {
		out.Family(metrics.KindGauge, name, "1 if there was an error while getting metrics, 0 otherwise.")
		out.Sample(value)
	}
}

// writeResource writes the samples of the rows that are of a kind.
func (g *collected) writeResource(out *metrics.Stream, families []family, of func(*row) bool) {
	for _, f := range families {
		out.Family(f.kind, f.name, f.help)
		for i := range g.rows {
			r := &g.rows[i]
			if !of(r) {
				continue
			}
			value, ok := f.value(r)
			switch {
			case !ok:
			case f.name == startFamily:
				out.Sample(value, r.labels)
			default:
				out.SampleAt(r.at.UnixMilli(), value, r.labels)
			}
		}
	}
}

// labelResource sets the labels of pods and containers for /metrics/resource.
// Containers that are omitted get none.
func (s *Stats) labelResource(g *collected) {
	text := newLabelArena(len(g.rows))
	for i := range g.rows {
		r := &g.rows[i]
		if r.pod == nil {
			continue
		}
		labels := text.free
		if r.container != nil {
			if why := incomplete(r); why != "" {
				s.cfg.Log.Debug("omit container from /metrics/resource", "pod", r.pod.Namespace+"/"+r.pod.Name,
					"podUID", r.pod.UID, "container", r.container.Name, "reason", why)
				continue
			}
			labels = metrics.AppendLabel(labels, "container", r.container.Name)
		}
		labels = metrics.AppendLabel(labels, "namespace", r.pod.Namespace)
		r.labels = text.keep(metrics.AppendLabel(labels, "pod", r.pod.Name))
	}
}

// incomplete returns why metrics-server would drop the container's pod, or ""
// if it would not (checkContainerMetrics in its
// pkg/scraper/client/resource/decode.go). metrics-server uses nanoseconds and
// bytes, and treats a missing value as zero.
func incomplete(r *row) string {
	switch {
	case !r.nanoseconds.Known:
		return "unknown CPU time"
	case r.nanoseconds.Value == 0:
		return "no CPU time used"
	case !r.workingSet.Known:
		return "unknown memory: check that the memory controller is enabled"
	case r.workingSet.Value == 0:
		return "empty working set"
	default:
		return ""
	}
}

// cpuSeconds converts the CPU time, which is in microseconds.
func cpuSeconds(r *row) (float64, bool) {
	return float64(r.stats.CPU.Usage.Value) / 1e6, r.stats.CPU.Usage.Known
}

func valueOf(f cgroups.Number) (float64, bool) { return float64(f.Value), f.Known }

func workingSetBytes(r *row) (float64, bool) { return valueOf(r.workingSet) }

func swapBytes(r *row) (float64, bool) { return valueOf(r.stats.Memory.SwapCurrent) }

func swapLimit(r *row) (float64, bool) {
	limit := r.stats.Memory.SwapMax
	return float64(limit.Value), limit.Known && limit.Value != cgroups.NoLimit
}

func startSeconds(r *row) (float64, bool) {
	return float64(r.start.UnixNano()) / 1e9, r.start.Unix() > 0
}
