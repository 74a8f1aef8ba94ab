package stats

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/cgroups"
)

// cadvisorParts are what /metrics/cadvisor tells of.
const cadvisorParts = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartMemoryMax | cgroups.PartSwap |
	cgroups.PartEvents | cgroups.PartIO | cgroups.PartPressure

// cpuTotal says that CPU time is of all CPUs.
var cpuTotal = metrics.AppendLabel(nil, "cpu", "total")

// groupFamilies are what /metrics/cadvisor tells of every group.
var groupFamilies = []struct {
	kind       metrics.Kind
	name, help string
	value      func(*row) (value float64, ok bool)
}{
	{metrics.KindCounter, "container_cpu_cfs_periods_total", "Periods in which a CPU limit was watched.", limited(func(c *cgroups.CPUFigures) cgroups.Figure { return c.Periods })},
	{metrics.KindCounter, "container_cpu_cfs_throttled_periods_total", "Periods in which a CPU limit was hit.", limited(func(c *cgroups.CPUFigures) cgroups.Figure { return c.ThrottledPeriods })},
	{metrics.KindGauge, "container_memory_working_set_bytes", "Memory without the file pages that nobody used lately.", workingSetBytes},
	{metrics.KindGauge, "container_memory_usage_bytes", "All memory, page cache included.", func(r *row) (float64, bool) { return plain(r.usage) }},
	{metrics.KindGauge, "container_memory_rss", "Anonymous memory.", func(r *row) (float64, bool) { return plain(r.figures.Memory.Anon) }},
	{metrics.KindGauge, "container_memory_cache", "Page cache.", func(r *row) (float64, bool) { return plain(r.figures.Memory.File) }},
	{metrics.KindGauge, "container_memory_swap", "Swap that is used.", swapBytes},
	{metrics.KindGauge, "container_spec_memory_limit_bytes", "Memory limit; 0 is none.", memoryLimit},
	{metrics.KindCounter, "container_oom_events_total", "Processes killed for want of memory.", func(r *row) (float64, bool) { return plain(r.figures.Events.OOMKill) }},
	{metrics.KindCounter, "container_pressure_cpu_waiting_seconds_total", "Time in which some task waited for the CPU.", pressure(func(f *cgroups.Figures) *cgroups.Stall { return &f.CPUPressure.Some })},
	{metrics.KindCounter, "container_pressure_cpu_stalled_seconds_total", "Time in which all tasks waited for the CPU.", pressure(func(f *cgroups.Figures) *cgroups.Stall { return &f.CPUPressure.Full })},
	{metrics.KindCounter, "container_pressure_memory_waiting_seconds_total", "Time in which some task waited for memory.", pressure(func(f *cgroups.Figures) *cgroups.Stall { return &f.MemoryPressure.Some })},
	{metrics.KindCounter, "container_pressure_memory_stalled_seconds_total", "Time in which all tasks waited for memory.", pressure(func(f *cgroups.Figures) *cgroups.Stall { return &f.MemoryPressure.Full })},
	{metrics.KindCounter, "container_pressure_io_waiting_seconds_total", "Time in which some task waited for I/O.", pressure(func(f *cgroups.Figures) *cgroups.Stall { return &f.IOPressure.Some })},
	{metrics.KindCounter, "container_pressure_io_stalled_seconds_total", "Time in which all tasks waited for I/O.", pressure(func(f *cgroups.Figures) *cgroups.Stall { return &f.IOPressure.Full })},
}

// ioFamilies have the device as a label more.
var ioFamilies = []struct {
	name, help string
	value      func(*cgroups.IOFigures) cgroups.Figure
}{
	{"container_fs_reads_total", "Reads from disks.", func(f *cgroups.IOFigures) cgroups.Figure { return f.Reads }},
	{"container_fs_reads_bytes_total", "Bytes read from disks.", func(f *cgroups.IOFigures) cgroups.Figure { return f.ReadBytes }},
	{"container_fs_writes_total", "Writes to disks.", func(f *cgroups.IOFigures) cgroups.Figure { return f.Writes }},
	{"container_fs_writes_bytes_total", "Bytes written to disks.", func(f *cgroups.IOFigures) cgroups.Figure { return f.WrittenBytes }},
}

// networkFamilies have the interface as a label more.
var networkFamilies = []struct {
	name, help string
	value      func(*Interface) uint64
}{
	{"container_network_receive_bytes_total", "Bytes received.", func(i *Interface) uint64 { return i.Rx.Bytes }},
	{"container_network_receive_packets_total", "Packets received.", func(i *Interface) uint64 { return i.Rx.Packets }},
	{"container_network_receive_packets_dropped_total", "Packets dropped while receiving.", func(i *Interface) uint64 { return i.Rx.Dropped }},
	{"container_network_transmit_bytes_total", "Bytes sent.", func(i *Interface) uint64 { return i.Tx.Bytes }},
	{"container_network_transmit_packets_total", "Packets sent.", func(i *Interface) uint64 { return i.Tx.Packets }},
	{"container_network_transmit_packets_dropped_total", "Packets dropped while sending.", func(i *Interface) uint64 { return i.Tx.Dropped }},
}

// WriteCadvisor writes the text of /metrics/cadvisor. Where nothing can be
// read the text says so, as cAdvisor's does; an error is one of w.
func (s *Stats) WriteCadvisor(ctx context.Context, w io.Writer) error {
	out := metrics.NewStream(w)
	g, err := s.gather(ctx, cadvisorParts)
	if err != nil {
		s.cfg.Log.Error("no figures for /metrics/cadvisor", "node", s.cfg.Node, "error", err)
		scrapeErrors(out, 1)
		return out.Flush()
	}
	g.dropRepeated()
	g.labelCadvisor()
	s.writeGroups(out, g)
	s.writeNetwork(ctx, out, g)

	labels := metrics.AppendLabel(nil, "boot_id", g.machine.BootID)
	labels = metrics.AppendLabel(labels, "machine_id", g.machine.MachineID)
	labels = metrics.AppendLabel(labels, "system_uuid", g.machine.SystemUUID)
	out.Family(metrics.KindGauge, "machine_cpu_cores", "CPUs of the machine.")
	out.Sample(float64(g.machine.Cores), labels)
	out.Family(metrics.KindGauge, "machine_memory_bytes", "Memory of the machine.")
	out.Sample(float64(g.machine.Memory), labels)
	failed := 0.0
	if g.broken {
		failed = 1
	}
	scrapeErrors(out, failed)
	return out.Flush()
}

func scrapeErrors(out *metrics.Stream, failed float64) {
	for _, name := range [...]string{"container_scrape_error", "machine_scrape_error"} {
		out.Family(metrics.KindGauge, name, "1 if figures could not be read, else 0.")
		out.Sample(failed)
	}
}

func (s *Stats) writeGroups(out *metrics.Stream, g *gathered) {
	out.Family(metrics.KindGauge, "container_last_seen", "When the group was seen last, in seconds since 1970.")
	for i := range g.rows {
		out.Sample(float64(g.rows[i].at.Unix()), g.rows[i].labels)
	}
	out.Family(metrics.KindGauge, "container_start_time_seconds", "When the group was started, in seconds since 1970.")
	for i := range g.rows {
		if start := g.rows[i].start(&g.machine); start.Unix() > 0 {
			out.Sample(float64(start.Unix()), g.rows[i].labels)
		}
	}
	out.Family(metrics.KindCounter, "container_cpu_usage_seconds_total", "CPU time, in seconds of one core.")
	for i := range g.rows {
		if value, ok := cpuSeconds(&g.rows[i]); ok {
			out.Sample(value, g.rows[i].labels, cpuTotal)
		}
	}
	for _, f := range groupFamilies {
		out.Family(f.kind, f.name, f.help)
		for i := range g.rows {
			if value, ok := f.value(&g.rows[i]); ok {
				out.Sample(value, g.rows[i].labels)
			}
		}
	}
	for _, f := range ioFamilies {
		out.Family(metrics.KindCounter, f.name, f.help)
		for i := range g.rows {
			if value := f.value(&g.rows[i].figures.IO); value.Known {
				out.Sample(float64(value.Value), g.rows[i].labels, s.device)
			}
		}
	}
}

// writeNetwork writes the counters of the node and of all pods that are in
// rows.
func (s *Stats) writeNetwork(ctx context.Context, out *metrics.Stream, g *gathered) {
	if s.cfg.Network == nil {
		return
	}
	interfaces := s.interfaces(ctx, nil, make([]Interface, 0, 2*len(g.pods)+4))
	text := newLabelText(cap(interfaces))
	labels := make([][]byte, 0, cap(interfaces))
	add := func(id, name, image string, pod *Pod) {
		for _, n := range interfaces[len(labels):] {
			labels = append(labels, text.keep(metrics.AppendLabel(appendCadvisor(text.begin(), id, name, image, pod, ""), "interface", n.Name)))
		}
	}
	add("/", "", "", nil)
	for i := range g.rows {
		if p := g.rows[i].pod; p != nil && g.rows[i].container == nil {
			interfaces = s.interfaces(ctx, p, interfaces)
			add(rooted(p.Sandbox.Cgroup), p.Sandbox.ID, p.Sandbox.Image, p)
		}
	}
	for _, f := range networkFamilies {
		out.Family(metrics.KindCounter, f.name, f.help)
		for i := range interfaces {
			out.Sample(float64(f.value(&interfaces[i])), labels[i])
		}
	}
}

// dropRepeated leaves one row for each group: the agent and the runtime may
// be in one.
func (g *gathered) dropRepeated() {
	for i := 0; i < len(g.rows) && g.rows[i].pod == nil; {
		first := 0
		for g.rows[first].cgroup != g.rows[i].cgroup {
			first++
		}
		if first < i {
			g.rows = slices.Delete(g.rows, i, i+1)
		} else {
			i++
		}
	}
}

// labelCadvisor gives all rows their labels.
func (g *gathered) labelCadvisor() {
	text := newLabelText(len(g.rows))
	for i := range g.rows {
		r := &g.rows[i]
		switch {
		case r.container != nil:
			r.labels = text.keep(appendCadvisor(text.begin(), r.cgroup, r.container.ID, r.container.Image, r.pod, r.container.Name))
		default:
			r.labels = text.keep(appendCadvisor(text.begin(), r.cgroup, "", "", r.pod, ""))
		}
	}
}

// appendCadvisor appends the six labels that every sample of a group has,
// empty where the group has no such thing (containerPrometheusLabelsFunc in
// pkg/kubelet/server/server.go). Only containers and sandboxes have an image:
// rules that sum over a pod go by that to count nothing twice.
func appendCadvisor(to []byte, id, name, image string, pod *Pod, container string) []byte {
	var namespace, podName string
	if pod != nil {
		namespace, podName = pod.Namespace, pod.Name
	}
	to = metrics.AppendLabel(to, "container", container)
	to = metrics.AppendLabel(to, "id", id)
	to = metrics.AppendLabel(to, "image", image)
	to = metrics.AppendLabel(to, "name", name)
	to = metrics.AppendLabel(to, "namespace", namespace)
	return metrics.AppendLabel(to, "pod", podName)
}

// start is when what the row is of was started; zero is not known.
func (r *row) start(m *Machine) time.Time {
	switch {
	case r.container != nil:
		return r.container.Start
	case r.pod != nil:
		return r.pod.Sandbox.Start
	case r.system != nil:
		return r.system.Start
	default:
		return m.Boot
	}
}

func memoryLimit(r *row) (float64, bool) {
	limit := r.figures.Memory.Max
	if limit.Value == cgroups.NoLimit {
		limit.Value = 0
	}
	return plain(limit)
}

// limited is a counter of the CPU limit, for groups that have had one; the
// kernel has the counters for all.
func limited(of func(*cgroups.CPUFigures) cgroups.Figure) func(*row) (float64, bool) {
	return func(r *row) (float64, bool) {
		value := of(&r.figures.CPU)
		return float64(value.Value), value.Known && r.figures.CPU.Periods.Value > 0
	}
}

func pressure(of func(*cgroups.Figures) *cgroups.Stall) func(*row) (float64, bool) {
	return func(r *row) (float64, bool) {
		stall := of(&r.figures)
		return float64(stall.Total) / 1e6, stall.Known
	}
}
