package stats

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/cgroups"
)

// cadvisorParts are the parts of a cgroup that /metrics/cadvisor reports.
const cadvisorParts = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartMemoryMax | cgroups.PartSwap |
	cgroups.PartEvents | cgroups.PartIO | cgroups.PartPressure

// cpuTotal is the label of CPU time summed over all CPUs.
var cpuTotal = metrics.AppendLabel(nil, "cpu", "total")

// The metrics that /metrics/cadvisor has for every cgroup, in this order. Those of cpuFamilies
// have the label cpuTotal, those of ioFamilies the device.
var (
	timeFamilies = []family{
		{metrics.KindGauge, "container_last_seen", "Last time the cgroup was seen, in seconds since the unix epoch.", func(r *row) (float64, bool) { return float64(r.at.Unix()), true }},
		{metrics.KindGauge, "container_start_time_seconds", "Start time since the unix epoch in seconds.", func(r *row) (float64, bool) { return float64(r.start.Unix()), r.start.Unix() > 0 }},
	}
	cpuFamilies = []family{
		{metrics.KindCounter, "container_cpu_usage_seconds_total", "Cumulative CPU time consumed in seconds.", cpuSeconds},
	}
	groupFamilies = []family{
		{metrics.KindCounter, "container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", cfsCounter(func(c *cgroups.CPUStats) cgroups.Number { return c.Periods })},
		{metrics.KindCounter, "container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", cfsCounter(func(c *cgroups.CPUStats) cgroups.Number { return c.ThrottledPeriods })},
		{metrics.KindGauge, "container_memory_working_set_bytes", "Current working set in bytes.", workingSetBytes},
		{metrics.KindGauge, "container_memory_usage_bytes", "Current memory usage in bytes, including page cache.", func(r *row) (float64, bool) { return valueOf(r.usage) }},
		{metrics.KindGauge, "container_memory_rss", "Size of RSS in bytes.", func(r *row) (float64, bool) { return valueOf(r.stats.Memory.Anon) }},
		{metrics.KindGauge, "container_memory_cache", "Number of bytes of page cache memory.", func(r *row) (float64, bool) { return valueOf(r.stats.Memory.File) }},
		{metrics.KindGauge, "container_memory_swap", "Swap usage in bytes.", swapBytes},
		{metrics.KindGauge, "container_spec_memory_limit_bytes", "Memory limit in bytes; 0 is none.", memoryLimit},
		{metrics.KindCounter, "container_oom_events_total", "Number of processes killed by the OOM killer.", func(r *row) (float64, bool) { return valueOf(r.stats.Events.OOMKill) }},
		{metrics.KindCounter, "container_pressure_cpu_waiting_seconds_total", "Total time in which some tasks waited for CPU, in seconds.", pressure(func(f *cgroups.Stats) *cgroups.Stall { return &f.CPUPressure.Some })},
		{metrics.KindCounter, "container_pressure_cpu_stalled_seconds_total", "Total time in which all tasks waited for CPU, in seconds.", pressure(func(f *cgroups.Stats) *cgroups.Stall { return &f.CPUPressure.Full })},
		{metrics.KindCounter, "container_pressure_memory_waiting_seconds_total", "Total time in which some tasks waited for memory, in seconds.", pressure(func(f *cgroups.Stats) *cgroups.Stall { return &f.MemoryPressure.Some })},
		{metrics.KindCounter, "container_pressure_memory_stalled_seconds_total", "Total time in which all tasks waited for memory, in seconds.", pressure(func(f *cgroups.Stats) *cgroups.Stall { return &f.MemoryPressure.Full })},
		{metrics.KindCounter, "container_pressure_io_waiting_seconds_total", "Total time in which some tasks waited for I/O, in seconds.", pressure(func(f *cgroups.Stats) *cgroups.Stall { return &f.IOPressure.Some })},
		{metrics.KindCounter, "container_pressure_io_stalled_seconds_total", "Total time in which all tasks waited for I/O, in seconds.", pressure(func(f *cgroups.Stats) *cgroups.Stall { return &f.IOPressure.Full })},
	}
	ioFamilies = []family{
		{metrics.KindCounter, "container_fs_reads_total", "Cumulative count of reads completed.", func(r *row) (float64, bool) { return valueOf(r.stats.IO.Reads) }},
		{metrics.KindCounter, "container_fs_reads_bytes_total", "Cumulative count of bytes read.", func(r *row) (float64, bool) { return valueOf(r.stats.IO.ReadBytes) }},
		{metrics.KindCounter, "container_fs_writes_total", "Cumulative count of writes completed.", func(r *row) (float64, bool) { return valueOf(r.stats.IO.Writes) }},
		{metrics.KindCounter, "container_fs_writes_bytes_total", "Cumulative count of bytes written.", func(r *row) (float64, bool) { return valueOf(r.stats.IO.WrittenBytes) }},
	}
)

// networkFamilies have the interface as an additional label.
var networkFamilies = []struct {
	name, help string
	value      func(*Interface) uint64
}{
	{"container_network_receive_bytes_total", "Cumulative count of bytes received.", func(i *Interface) uint64 { return i.Rx.Bytes }},
	{"container_network_receive_packets_total", "Cumulative count of packets received.", func(i *Interface) uint64 { return i.Rx.Packets }},
	{"container_network_receive_packets_dropped_total", "Cumulative count of packets dropped while receiving.", func(i *Interface) uint64 { return i.Rx.Dropped }},
	{"container_network_transmit_bytes_total", "Cumulative count of bytes transmitted.", func(i *Interface) uint64 { return i.Tx.Bytes }},
	{"container_network_transmit_packets_total", "Cumulative count of packets transmitted.", func(i *Interface) uint64 { return i.Tx.Packets }},
	{"container_network_transmit_packets_dropped_total", "Cumulative count of packets dropped while transmitting.", func(i *Interface) uint64 { return i.Tx.Dropped }},
}

// WriteCadvisor writes the text of /metrics/cadvisor. If nothing can be read,
// the text reports a scrape error, as cAdvisor's does. Errors are those of w.
func (s *Stats) WriteCadvisor(ctx context.Context, w io.Writer) error {
	out := metrics.NewStream(w)
	g, err := s.collect(ctx, cadvisorParts)
	if err != nil {
		s.cfg.Log.Error("cannot collect stats for /metrics/cadvisor", "node", s.cfg.Node, "error", err)
		scrapeErrors(out, true, "container_scrape_error", "machine_scrape_error")
		return out.Flush()
	}
	g.dedupe()
	g.labelCadvisor()
	writeFamilies(out, g.rows, timeFamilies)
	writeFamilies(out, g.rows, cpuFamilies, cpuTotal)
	writeFamilies(out, g.rows, groupFamilies)
	writeFamilies(out, g.rows, ioFamilies, s.device)
	s.writeNetwork(ctx, out, g)

	labels := metrics.AppendLabel(nil, "boot_id", g.machine.BootID)
	labels = metrics.AppendLabel(labels, "machine_id", g.machine.MachineID)
	labels = metrics.AppendLabel(labels, "system_uuid", g.machine.SystemUUID)
	out.Family(metrics.KindGauge, "machine_cpu_cores", "Number of logical CPU cores.")
	out.Sample(float64(g.machine.Cores), labels)
	out.Family(metrics.KindGauge, "machine_memory_bytes", "Amount of memory of the machine in bytes.")
	out.Sample(float64(g.machine.Memory), labels)
	scrapeErrors(out, g.readFailed, "container_scrape_error", "machine_scrape_error")
	return out.Flush()
}

// writeFamilies writes the samples of rows. more are labels of all samples.
func writeFamilies(out *metrics.Stream, rows []row, families []family, more ...[]byte) {
	labels := append([][]byte{nil}, more...)
	for _, f := range families {
		out.Family(f.kind, f.name, f.help)
		for i := range rows {
			if value, ok := f.value(&rows[i]); ok {
				labels[0] = rows[i].labels
				out.Sample(value, labels...)
			}
		}
	}
}

// writeNetwork writes the network counters of the node and of all pods in
// g.rows.
func (s *Stats) writeNetwork(ctx context.Context, out *metrics.Stream, g *collected) {
	interfaces := s.interfaces(ctx, nil, make([]Interface, 0, 2*len(g.pods)+4))
	text := newLabelArena(cap(interfaces))
	labels := make([][]byte, 0, cap(interfaces))
	add := func(id, name, image string, pod *Pod) {
		for _, n := range interfaces[len(labels):] {
			labels = append(labels, text.keep(metrics.AppendLabel(appendCadvisor(text.free, id, name, image, pod, ""), "interface", n.Name)))
		}
	}
	add("/", "", "", nil)
	for i := range g.rows {
		if p := g.rows[i].pod; p != nil && g.rows[i].container == nil {
			interfaces = s.interfaces(ctx, p, interfaces)
			add(p.Sandbox.Cgroup, p.Sandbox.ID, p.Sandbox.Image, p)
		}
	}
	for _, f := range networkFamilies {
		out.Family(metrics.KindCounter, f.name, f.help)
		for i := range interfaces {
			out.Sample(float64(f.value(&interfaces[i])), labels[i])
		}
	}
}

// dedupe leaves one row for each cgroup of the node and of the system containers.
func (g *collected) dedupe() {
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

// labelCadvisor sets the labels of all rows for /metrics/cadvisor.
func (g *collected) labelCadvisor() {
	text := newLabelArena(len(g.rows))
	for i := range g.rows {
		r := &g.rows[i]
		c := cmp.Or(r.container, &Container{})
		r.labels = text.keep(appendCadvisor(text.free, r.cgroup, c.ID, c.Image, r.pod, c.Name))
	}
}

// appendCadvisor appends the six labels that every sample of a cgroup has.
// Labels that do not apply are empty (containerPrometheusLabelsFunc in
// pkg/kubelet/server/server.go). Only containers and sandboxes have an image:
// recording rules select on that so that sums over a pod count nothing twice.
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

func memoryLimit(r *row) (float64, bool) {
	limit := r.stats.Memory.Max
	if limit.Value == cgroups.NoLimit {
		limit.Value = 0
	}
	return valueOf(limit)
}

// cfsCounter returns a counter of the CPU limit. It is omitted for cgroups that never had
// a limit. The kernel has the counters for all cgroups.
func cfsCounter(of func(*cgroups.CPUStats) cgroups.Number) func(*row) (float64, bool) {
	return func(r *row) (float64, bool) {
		value := of(&r.stats.CPU)
		return float64(value.Value), value.Known && r.stats.CPU.Periods.Value > 0
	}
}

func pressure(of func(*cgroups.Stats) *cgroups.Stall) func(*row) (float64, bool) {
	return func(r *row) (float64, bool) {
		stall := of(&r.stats)
		return float64(stall.Total) / 1e6, stall.Known
	}
}
