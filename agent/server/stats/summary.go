package stats

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/cgroups"
)

// The parts of a cgroup that the Summary reports. The memory limit is for the
// available memory.
const (
	coreParts    = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartMemoryMax | cgroups.PartSwap | cgroups.PartPressure
	summaryParts = coreParts | cgroups.PartPids
)

// defaultInterface is the interface whose counters are reported as a pod's
// (defaultNetworkInterfaceName in pkg/kubelet/stats/helper.go).
const defaultInterface = "eth0"

// WriteSummary writes the response of /stats/summary as JSON, or of
// /stats/summary?only_cpu_and_memory=true. If reading fails, it returns the
// error and writes nothing. Other errors are those of w.
func (s *Stats) WriteSummary(ctx context.Context, w io.Writer, onlyCPUAndMemory bool) error {
	summary, err := s.Summary(ctx, onlyCPUAndMemory)
	if err != nil {
		return err
	}
	// Pod by pod, so that the whole text is never in memory.
	if err := writePieces(w, summary); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func writePieces(w io.Writer, summary *statsapi.Summary) error {
	out := bufio.NewWriter(w) // after an error of w, all writes return it
	encoder := json.NewEncoder(out)
	_, _ = out.WriteString(`{"node":`)
	if err := encoder.Encode(&summary.Node); err != nil {
		return err
	}
	_, _ = out.WriteString(`,"pods":[`)
	for i := range summary.Pods {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err := encoder.Encode(&summary.Pods[i]); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

// Summary reads all stats, or only those of CPU, memory and swap. It omits
// cgroups that no longer exist, and parts for which Config's funcs fail, which
// it logs. It returns an error if Machine or Pods fails.
func (s *Stats) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	parts := summaryParts
	if onlyCPUAndMemory {
		parts = coreParts
	}
	g, err := s.collect(ctx, parts)
	if err != nil {
		return nil, err
	}
	full := !onlyCPUAndMemory
	summary := &statsapi.Summary{Pods: make([]statsapi.PodStats, 0, len(g.pods))}
	summary.Node.NodeName = s.cfg.Node
	summary.Node.StartTime = metav1.NewTime(g.machine.Boot)
	if full {
		s.fillNode(ctx, g, &summary.Node)
	}
	for rows := g.rows; len(rows) > 0; {
		r := &rows[0]
		switch {
		case r.isNode():
			n, c := &summary.Node, r.summary("", full)
			n.CPU, n.Memory, n.Swap, n.IO = c.CPU, c.Memory, c.Swap, c.IO
			rows = rows[1:]
		case r.system != nil:
			summary.Node.SystemContainers = append(summary.Node.SystemContainers, r.summary(r.system.Name, full))
			rows = rows[1:]
		default:
			n := 1
			for n < len(rows) && rows[n].pod == r.pod {
				n++
			}
			stats := podStats(r.pod, rows[:n], full)
			if full {
				s.fillPod(ctx, r.pod, &stats, summary.Node.Fs)
			}
			summary.Pods = append(summary.Pods, stats)
			rows = rows[n:]
		}
	}
	return summary, nil
}

func podStats(pod *Pod, rows []row, full bool) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		StartTime:  metav1.NewTime(pod.Sandbox.Start),
		Containers: make([]statsapi.ContainerStats, 0, len(rows)),
	}
	for i := range rows {
		r := &rows[i]
		if r.container != nil {
			out.Containers = append(out.Containers, r.summary(r.container.Name, full))
			continue
		}
		c := r.summary("", full)
		out.CPU, out.Memory, out.Swap, out.IO = c.CPU, c.Memory, c.Swap, c.IO
		if full && r.stats.Pids.Known {
			out.ProcessStats = &statsapi.ProcessStats{ProcessCount: valuePtr(&r.stats.Pids)}
		}
	}
	return out
}

// summary returns what the Summary reports of every kind of cgroup. It points into the row.
// I/O is included only if full is set.
func (r *row) summary(name string, full bool) statsapi.ContainerStats {
	f, at := &r.stats, metav1.NewTime(r.at)
	all := new(struct {
		cpu    statsapi.CPUStats
		memory statsapi.MemoryStats
		swap   statsapi.SwapStats
		io     statsapi.IOStats
	})
	out := statsapi.ContainerStats{Name: name, StartTime: metav1.NewTime(r.start)}
	if r.nanoseconds.Known {
		all.cpu = statsapi.CPUStats{
			Time: at, UsageCoreNanoSeconds: valuePtr(&r.nanoseconds), UsageNanoCores: valuePtr(&r.rate), PSI: psi(&f.CPUPressure),
		}
		out.CPU = &all.cpu
	}
	if r.usage.Known || r.workingSet.Known {
		all.memory = statsapi.MemoryStats{
			Time: at, AvailableBytes: valuePtr(&r.available), UsageBytes: valuePtr(&r.usage), WorkingSetBytes: valuePtr(&r.workingSet),
			RSSBytes: valuePtr(&f.Memory.Anon), PageFaults: valuePtr(&f.Memory.Faults), MajorPageFaults: valuePtr(&f.Memory.MajorFaults),
			PSI: psi(&f.MemoryPressure),
		}
		out.Memory = &all.memory
	}
	if f.Memory.SwapCurrent.Known {
		all.swap = statsapi.SwapStats{Time: at, SwapUsageBytes: valuePtr(&f.Memory.SwapCurrent), SwapAvailableBytes: valuePtr(&r.swapAvailable)}
		out.Swap = &all.swap
	}
	if io := psi(&f.IOPressure); full && io != nil {
		all.io = statsapi.IOStats{Time: at, PSI: io}
		out.IO = &all.io
	}
	return out
}

// valuePtr returns a pointer to the value of f, or nil if it is unknown.
func valuePtr(f *cgroups.Number) *uint64 {
	if !f.Known {
		return nil
	}
	return &f.Value
}

// psi converts a pressure for the stats API. Its totals are in the kernel's
// microseconds. The API's comment specifies nanoseconds, but the kubelet
// reports microseconds (fs2/psi.go of opencontainers/cgroups, setPSIData of
// cAdvisor).
func psi(p *cgroups.Pressure) *statsapi.PSIStats {
	if !p.Some.Known && !p.Full.Known {
		return nil
	}
	return &statsapi.PSIStats{Some: psiData(&p.Some), Full: psiData(&p.Full)}
}

func psiData(s *cgroups.Stall) statsapi.PSIData {
	return statsapi.PSIData{Total: s.Total, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
}

// fillNode adds the stats that only the node has.
func (s *Stats) fillNode(ctx context.Context, g *collected, n *statsapi.NodeStats) {
	now := metav1.NewTime(time.Now())
	n.Network = s.network(ctx, nil, now)
	if g.machine.MaxTasks > 0 {
		n.Rlimit = &statsapi.RlimitStats{Time: now, MaxPID: &g.machine.MaxTasks}
		if g.machine.Tasks > 0 {
			n.Rlimit.NumOfRunningProcesses = &g.machine.Tasks
		}
	}
	disk, err := s.cfg.NodeDisk(ctx)
	if err != nil {
		s.cfg.Log.Warn("cannot measure filesystems of node", "node", s.cfg.Node, "error", err)
		return
	}
	n.Fs = disk.Fs
	if disk.ImageFs != nil || disk.ContainerFs != nil {
		n.Runtime = &statsapi.RuntimeStats{ImageFs: disk.ImageFs, ContainerFs: disk.ContainerFs}
	}
}

// fillPod adds a pod's network and disk stats. nodeFs is the filesystem of its
// ephemeral storage; nil is unknown.
func (s *Stats) fillPod(ctx context.Context, pod *Pod, p *statsapi.PodStats, nodeFs *statsapi.FsStats) {
	p.Network = s.network(ctx, pod, metav1.NewTime(time.Now()))
	disk, err := s.cfg.PodDisk(ctx, pod)
	if err != nil {
		s.cfg.Log.Warn("cannot measure disk usage of pod", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "error", err)
		return
	}
	for i := range min(len(disk.Containers), len(pod.Containers)) {
		for j := range p.Containers {
			if p.Containers[j].Name == pod.Containers[i].Name {
				p.Containers[j].Rootfs, p.Containers[j].Logs = disk.Containers[i].Rootfs, disk.Containers[i].Logs
			}
		}
	}
	for i := range disk.Volumes {
		p.VolumeStats = append(p.VolumeStats, disk.Volumes[i].Stats)
	}
	p.EphemeralStorage = ephemeralStorage(&disk, nodeFs)
}

// network returns the stats of the interfaces of a pod or, if it is nil, of the
// node.
func (s *Stats) network(ctx context.Context, pod *Pod, at metav1.Time) *statsapi.NetworkStats {
	interfaces := s.interfaces(ctx, pod, nil)
	if len(interfaces) == 0 {
		return nil
	}
	out := &statsapi.NetworkStats{Time: at, Interfaces: make([]statsapi.InterfaceStats, len(interfaces))}
	for i := range interfaces {
		n := &interfaces[i]
		out.Interfaces[i] = statsapi.InterfaceStats{
			Name: n.Name, RxBytes: &n.Rx.Bytes, RxErrors: &n.Rx.Errors, TxBytes: &n.Tx.Bytes, TxErrors: &n.Tx.Errors,
		}
		if n.Name == defaultInterface {
			out.InterfaceStats = out.Interfaces[i]
		}
	}
	return out
}

// interfaces appends the interfaces of a pod or, if it is nil, of the node. On
// an error it logs and appends none.
func (s *Stats) interfaces(ctx context.Context, pod *Pod, to []Interface) []Interface {
	out, err := s.cfg.Network(ctx, pod, to)
	if err == nil {
		return out
	}
	if pod == nil {
		s.cfg.Log.Warn("cannot read network counters of node", "node", s.cfg.Node, "error", err)
	} else {
		s.cfg.Log.Warn("cannot read network counters of pod", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "error", err)
	}
	return to
}
