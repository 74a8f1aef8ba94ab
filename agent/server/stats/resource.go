package stats

import (
	"context"
	"io"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/cgroups"
)

// resourceParts are what /metrics/resource tells of.
const resourceParts = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartSwap

// resourceFamily is a family of /metrics/resource: of nodes, of pods or of
// containers.
type resourceFamily struct {
	kind       metrics.Kind
	name, help string
	value      func(*row) (value float64, ok bool)
	timeless   bool
}

var (
	nodeFamilies = []resourceFamily{
		{metrics.KindCounter, "node_cpu_usage_seconds_total", "CPU time that the node has used, in seconds of one core.", cpuSeconds, false},
		{metrics.KindGauge, "node_memory_working_set_bytes", "Working set of the node.", workingSetBytes, false},
		{metrics.KindGauge, "node_swap_usage_bytes", "Swap that the node uses.", swapBytes, false},
	}
	containerFamilies = []resourceFamily{
		{metrics.KindGauge, "container_start_time_seconds", "When the container was started, in seconds since 1970.", startSeconds, true},
		{metrics.KindCounter, "container_cpu_usage_seconds_total", "CPU time that the container has used, in seconds of one core.", cpuSeconds, false},
		{metrics.KindGauge, "container_memory_working_set_bytes", "Working set of the container.", workingSetBytes, false},
		{metrics.KindGauge, "container_swap_usage_bytes", "Swap that the container uses.", swapBytes, false},
		{metrics.KindGauge, "container_swap_limit_bytes", "Swap that the container may use, if there is a limit.", swapLimit, false},
	}
	podFamilies = []resourceFamily{
		{metrics.KindCounter, "pod_cpu_usage_seconds_total", "CPU time that the pod has used, in seconds of one core.", cpuSeconds, false},
		{metrics.KindGauge, "pod_memory_working_set_bytes", "Working set of the pod.", workingSetBytes, false},
		{metrics.KindGauge, "pod_swap_usage_bytes", "Swap that the pod uses.", swapBytes, false},
	}
)

// WriteResource writes the text of /metrics/resource, what metrics-server
// reads. Containers that it could do nothing with are left out: it drops a
// pod of which any sample names a container without CPU time or memory. Where
// nothing can be read the text says so, as the kubelet's does; an error is
// one of w.
func (s *Stats) WriteResource(ctx context.Context, w io.Writer) error {
	out := metrics.NewStream(w)
	g, err := s.gather(ctx, resourceParts)
	failed := 0.0
	if err != nil {
		s.cfg.Log.Error("no figures for /metrics/resource", "node", s.cfg.Node, "error", err)
		g, failed = &gathered{}, 1
	} else if g.broken {
		failed = 1
	}
	s.labelResource(g)
	for i := range nodeFamilies {
		nodeFamilies[i].write(out, g, (*row).isNode)
	}
	for i := range containerFamilies {
		containerFamilies[i].write(out, g, func(r *row) bool { return r.container != nil && r.labels != nil })
	}
	for i := range podFamilies {
		podFamilies[i].write(out, g, func(r *row) bool { return r.pod != nil && r.container == nil })
	}
	for _, name := range [...]string{"resource_scrape_error", "scrape_error"} {
		out.Family(metrics.KindGauge, name, "1 if figures could not be read, else 0.")
		out.Sample(failed)
	}
	return out.Flush()
}

func (f *resourceFamily) write(out *metrics.Stream, g *gathered, of func(*row) bool) {
	out.Family(f.kind, f.name, f.help)
	for i := range g.rows {
		r := &g.rows[i]
		if !of(r) {
			continue
		}
		value, ok := f.value(r)
		switch {
		case !ok:
		case f.timeless:
			out.Sample(value, r.labels)
		default:
			out.SampleAt(r.at.UnixMilli(), value, r.labels)
		}
	}
}

// labelResource gives pods and containers their labels, but none to
// containers that are left out.
func (s *Stats) labelResource(g *gathered) {
	text := newLabelText(len(g.rows))
	for i := range g.rows {
		r := &g.rows[i]
		if r.pod == nil {
			continue
		}
		labels := text.begin()
		if r.container != nil {
			if why := incomplete(r); why != "" {
				s.cfg.Log.Debug("a container is left out of /metrics/resource", "namespace", r.pod.Namespace, "pod", r.pod.Name,
					"podUID", r.pod.UID, "container", r.container.Name, "reason", why)
				continue
			}
			labels = metrics.AppendLabel(labels, "container", r.container.Name)
		}
		labels = metrics.AppendLabel(labels, "namespace", r.pod.Namespace)
		r.labels = text.keep(metrics.AppendLabel(labels, "pod", r.pod.Name))
	}
}

// incomplete says why metrics-server would drop the container's pod; ""
// means that it would not (checkContainerMetrics in its
// pkg/scraper/client/resource/decode.go). It counts nanoseconds and bytes,
// and takes nothing told for zero.
func incomplete(r *row) string {
	switch {
	case !r.nanoseconds.Known:
		return "its CPU time is not known"
	case r.nanoseconds.Value == 0:
		return "it has not used any CPU time"
	case !r.workingSet.Known:
		return "its memory is not known: is the memory controller on?"
	case r.workingSet.Value == 0:
		return "its working set is empty"
	default:
		return ""
	}
}

func cpuSeconds(r *row) (float64, bool) { return seconds(r.figures.CPU.Usage) }

// seconds are those of microseconds.
func seconds(f cgroups.Figure) (float64, bool) { return float64(f.Value) / 1e6, f.Known }

func plain(f cgroups.Figure) (float64, bool) { return float64(f.Value), f.Known }

func workingSetBytes(r *row) (float64, bool) { return plain(r.workingSet) }

func swapBytes(r *row) (float64, bool) { return plain(r.figures.Memory.SwapCurrent) }

func swapLimit(r *row) (float64, bool) {
	limit := r.figures.Memory.SwapMax
	return float64(limit.Value), limit.Known && limit.Value != cgroups.NoLimit
}

func startSeconds(r *row) (float64, bool) {
	start := r.container.Start
	return float64(start.UnixNano()) / 1e9, start.Unix() > 0
}
