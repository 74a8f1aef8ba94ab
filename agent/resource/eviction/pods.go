package eviction

import (
	"context"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/cgroups"
)

// candidates returns the pods that may be evicted, with the stats by which they are
// ranked for a signal. Critical pods are never evicted. If there are no candidates,
// nothing is measured.
func (m *Manager) candidates(ctx context.Context, s evictionapi.Signal) []policy.Pod {
	n, ok := m.Node()
	if !ok {
		return nil
	}
	var entries []pod.Entry
	for _, e := range m.Pods.Running() {
		if !pod.IsCritical(e.Pod) {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	measure := func(e *pod.Entry) policy.Pod { return m.usageOnDisk(ctx, e) }
	if len(policy.Reclaims(s, policy.OneFs)) == 0 { // not a signal of a disk
		measure = m.usageInCgroups(n)
	} else if err := m.DiskUsage.MeasureFully(ctx); err != nil && ctx.Err() == nil {
		m.Log.Warn("cannot measure the disk usage of all pods", "error", err)
	}
	out := make([]policy.Pod, len(entries))
	for i := range entries {
		out[i] = measure(&entries[i])
	}
	return out
}

// usageInCgroups returns a function that reads what pods and their containers use from
// their cgroups.
func (m *Manager) usageInCgroups(n *criconfig.Node) func(e *pod.Entry) policy.Pod {
	if m.Tree == nil {
		return func(e *pod.Entry) policy.Pod { return policy.Pod{Pod: e.Pod} }
	}
	reader := m.Tree.NewReader()
	return func(e *pod.Entry) policy.Pod {
		p, cgroup := policy.Pod{Pod: e.Pod}, criconfig.PodCgroup(e.Pod, n)
		var f cgroups.Stats
		if reader.Read(cgroup, cgroups.PartMemory|cgroups.PartPids, &f) != nil {
			return p
		}
		p.Known, p.Memory, p.Processes = true, measurement(f.Memory.WorkingSet()), measurement(f.Pids)
		for c := range e.Running() {
			if reader.Read(criconfig.ContainerCgroup(cgroup, c.ID, n), cgroups.PartMemory, &f) == nil {
				p.Containers = append(p.Containers, policy.Container{Name: c.Name, Memory: measurement(f.Memory.WorkingSet())})
			}
		}
		return p
	}
}

// limitedPods returns the active pods that have a limit on local storage, with their
// disk usage.
func (m *Manager) limitedPods(ctx context.Context) (out []policy.Pod) {
	for _, e := range m.Pods.Active() {
		if policy.HasLimit(e.Pod) {
			out = append(out, m.usageOnDisk(ctx, &e))
		}
	}
	return out
}

// usageOnDisk measures what a pod uses on disks.
func (m *Manager) usageOnDisk(ctx context.Context, e *pod.Entry) policy.Pod {
	p := policy.Pod{Pod: e.Pod}
	var names []string
	for c := range pod.Containers(&e.Pod.Spec) {
		names = append(names, c.Name)
	}
	used, err := m.DiskUsage.Pod(ctx, string(e.Pod.UID), names)
	if err != nil {
		return p
	}
	p.Known = true
	for i, c := range used.Containers {
		of := policy.Container{Name: names[i], Rootfs: diskOf(c.Rootfs), Logs: diskOf(c.Logs)}
		p.Ephemeral = add(add(p.Ephemeral, of.Rootfs.Bytes), of.Logs.Bytes)
		p.Containers = append(p.Containers, of)
	}
	for i := range used.Volumes {
		v := &used.Volumes[i]
		of := diskOf(&v.Stats.FsStats)
		if v.Ephemeral {
			p.Ephemeral = add(p.Ephemeral, of.Bytes)
		}
		p.Volumes = append(p.Volumes, policy.Volume{Name: v.Stats.Name, Disk: of})
	}
	p.Ephemeral = add(p.Ephemeral, diskOf(used.Other).Bytes)
	return p
}

func diskOf(s *statsapi.FsStats) (d policy.Disk) {
	if s == nil {
		return d
	}
	if s.UsedBytes != nil {
		d.Bytes = policy.Measured(int64Of(*s.UsedBytes))
	}
	if s.InodesUsed != nil {
		d.Inodes = policy.Measured(int64Of(*s.InodesUsed))
	}
	return d
}

// add adds two measurements; the sum is known if either is.
func add(a, b policy.Measurement) policy.Measurement {
	return policy.Measurement{Value: pod.AddSaturating(a.Value, b.Value), Known: a.Known || b.Known}
}

func measurement(f cgroups.Number) policy.Measurement {
	return policy.Measurement{Value: int64Of(f.Value), Known: f.Known}
}
