package agent

import (
	"context"
	"math"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/cgroups"
)

// observer answers what the thresholds are of, by a few small files and a
// statfs for each file system; nothing is walked. It is for one goroutine.
func (e *evictions) observer(l *layout) func(context.Context) evictionapi.Observations {
	var reader *cgroups.Reader
	if e.view.tree != nil {
		reader = e.view.tree.NewReader()
	}
	warned := false
	return func(context.Context) (o evictionapi.Observations) {
		now := time.Now()
		pods, told := e.allPods()
		e.signs.watch(pods, e.thresholds)
		load, err := e.load(now)
		if err == nil && reader != nil {
			e.observeMemory(&o, reader, &load, now)
			if told {
				observePods(&o, reader, pods, now)
			}
		}
		if load.MaxTasks > 0 && load.Tasks > 0 {
			o[evictionapi.PIDAvailable] = observed(load.MaxTasks-load.Tasks, load.MaxTasks, now)
		}
		if diskErr := e.observeDisks(&o, l, now); err == nil {
			err = diskErr
		}
		if err != nil && !warned {
			e.log.Warn("what the node has left cannot be told to the full", "error", err)
		}
		warned = err != nil
		return o
	}
}

func observed(available, capacity int64, now time.Time) evictionapi.Observation {
	return evictionapi.Observation{Available: max(available, 0), Capacity: capacity, Time: now, Known: true}
}

// observeMemory takes what the Summary has, the memory without the working set
// of the root. In that the kernel's own memory does not count: page tables,
// stacks, slabs. On a board of 256 MB these are more than the threshold, and by
// the Summary alone it would never be met. So where the kernel's own estimate
// is lower, that counts, without the pages of agent and runtime that it holds
// for available although their group protects them.
func (e *evictions) observeMemory(o *evictionapi.Observations, reader *cgroups.Reader, load *machine.Load, now time.Time) {
	var f cgroups.Stats
	if reader.Read("/", cgroups.PartMemory, &f) != nil {
		return
	}
	used := f.Memory.WorkingSet()
	if !used.Known {
		return
	}
	available := load.Memory - min(used.Value, load.Memory)
	if load.AvailableKnown {
		available = min(available, load.Available-min(e.kept(reader), load.Available))
	}
	o[evictionapi.MemoryAvailable] = observed(number(available), number(load.Memory), now)
}

// kept are the pages of files, in bytes, that the kernel does not take back
// from the group of agent and runtime: all but what the group has beyond its
// protection.
func (e *evictions) kept(reader *cgroups.Reader) uint64 {
	var f cgroups.Stats
	if e.protected == "" || reader.Read(e.protected, cgroups.PartMemory, &f) != nil || !f.Memory.Current.Known || !f.Memory.File.Known {
		return 0
	}
	protection, err := e.view.tree.MemoryMin(e.protected)
	if err != nil {
		return 0
	}
	file := f.Memory.File.Value
	if active, inactive := f.Memory.ActiveFile, f.Memory.InactiveFile; active.Known && inactive.Known {
		file = min(file, active.Value+inactive.Value) // what is locked is not in the estimate
	}
	over := f.Memory.Current.Value - min(protection, f.Memory.Current.Value)
	return file - min(over, file)
}

// observePods takes what pods may have together, where that is limited.
func observePods(o *evictionapi.Observations, reader *cgroups.Reader, pods string, now time.Time) {
	var f cgroups.Stats
	if reader.Read(pods, cgroups.PartMemory|cgroups.PartMemoryMax, &f) != nil {
		return // there are none yet
	}
	used, limit := f.Memory.WorkingSet(), f.Memory.Max
	if !used.Known || !limit.Known || limit.Value == cgroups.NoLimit {
		return
	}
	o[evictionapi.AllocatableMemoryAvailable] = observed(number(limit.Value-min(used.Value, limit.Value)), number(limit.Value), now)
}

// observeDisks measures each file system once. One that cannot be measured
// hides no other.
func (e *evictions) observeDisks(o *evictionapi.Observations, l *layout, now time.Time) error {
	type measured struct {
		diskusage.Space
		err error
	}
	at := func(path string, or measured) measured {
		if path == "" {
			return or
		}
		space, err := e.space(path)
		return measured{space, err}
	}
	nodeFs := at(e.config.Paths.Root, measured{})
	imageFs := at(l.images, nodeFs)
	containerFs := at(l.containers, imageFs)
	var failed error
	for _, of := range [...]struct {
		*measured
		bytes, inodes evictionapi.Signal
	}{
		{&nodeFs, evictionapi.NodeFsAvailable, evictionapi.NodeFsInodesFree},
		{&imageFs, evictionapi.ImageFsAvailable, evictionapi.ImageFsInodesFree},
		{&containerFs, evictionapi.ContainerFsAvailable, evictionapi.ContainerFsInodesFree},
	} {
		if of.err != nil {
			failed = of.err
			continue
		}
		o[of.bytes] = observed(of.Available, of.Capacity, now)
		if of.Inodes > 0 {
			o[of.inodes] = observed(of.InodesFree, of.Inodes, now)
		}
	}
	return failed
}

// pods are those that may go, with what the rank for a signal goes by. Where
// there are none, nothing is measured.
func (e *evictions) pods(ctx context.Context, s evictionapi.Signal) []policy.Pod {
	n, ok := e.view.node.peek()
	if !ok {
		return nil
	}
	entries := e.evictable()
	if len(entries) == 0 {
		return nil
	}
	measure := func(entry *pod.Entry) policy.Pod { return e.onDisk(ctx, entry) }
	if len(policy.Reclaims(s, policy.OneFs)) == 0 { // it is not of a disk
		measure = e.inGroups(n)
	} else if err := e.parts.disks.MeasureFully(ctx); err != nil && ctx.Err() == nil {
		e.log.Warn("what pods have on disks is not known to the full, and one has to go", "error", err)
	}
	out := make([]policy.Pod, len(entries))
	for i := range entries {
		out[i] = measure(&entries[i])
	}
	return out
}

// evictable are the pods of which something runs, also where they end, but for
// those that never go. One that has come to its own end runs no more, though
// its sandbox may.
func (e *evictions) evictable() (out []pod.Entry) {
	states := e.workers.States()
	for _, entry := range e.statuses.List() {
		state := states[entry.Pod.UID]
		ends := state == podworker.Terminating && !terminal(entry.Status.Phase)
		if entry.Sandbox.ID != "" && (state == podworker.Syncing || ends) && !pod.IsCritical(entry.Pod) {
			out = append(out, entry)
		}
	}
	return out
}

// inGroups reads what pods and their containers use by their groups.
func (e *evictions) inGroups(n *criconfig.Node) func(entry *pod.Entry) policy.Pod {
	if e.view.tree == nil {
		return func(entry *pod.Entry) policy.Pod { return policy.Pod{Pod: entry.Pod} }
	}
	reader := e.view.tree.NewReader()
	return func(entry *pod.Entry) policy.Pod {
		p, groups := policy.Pod{Pod: entry.Pod}, statsPod(entry, n)
		var f cgroups.Stats
		if reader.Read(groups.Cgroup, cgroups.PartMemory|cgroups.PartPids, &f) != nil {
			return p
		}
		p.Known, p.Memory, p.Processes = true, figure(f.Memory.WorkingSet()), figure(f.Pids)
		for i := range groups.Containers {
			if c := &groups.Containers[i]; reader.Read(c.Cgroup, cgroups.PartMemory, &f) == nil {
				p.Containers = append(p.Containers, policy.Container{Name: c.Name, Memory: figure(f.Memory.WorkingSet())})
			}
		}
		return p
	}
}

// limitedPods are those that have a limit on the node's disk and do not end.
func (e *evictions) limitedPods(ctx context.Context) (out []policy.Pod) {
	states := e.workers.States()
	for _, entry := range e.statuses.List() {
		if state := states[entry.Pod.UID]; policy.HasLimit(entry.Pod) && (state == podworker.Waiting || state == podworker.Syncing) {
			out = append(out, e.onDisk(ctx, &entry))
		}
	}
	return out
}

// onDisk measures what a pod has on disks.
func (e *evictions) onDisk(ctx context.Context, entry *pod.Entry) policy.Pod {
	p := policy.Pod{Pod: entry.Pod}
	var names []string
	for c := range pod.Containers(&entry.Pod.Spec) {
		names = append(names, c.Name)
	}
	used, err := e.parts.disks.Pod(ctx, string(entry.Pod.UID), names)
	if err != nil {
		return p
	}
	p.Known = true
	for i, c := range used.Containers {
		of := policy.Container{Name: names[i], Rootfs: taken(c.Rootfs), Logs: taken(c.Logs)}
		p.Ephemeral = both(both(p.Ephemeral, of.Rootfs.Bytes), of.Logs.Bytes)
		p.Containers = append(p.Containers, of)
	}
	for i := range used.Volumes {
		v := &used.Volumes[i]
		of := taken(&v.Stats.FsStats)
		if v.Ephemeral {
			p.Ephemeral = both(p.Ephemeral, of.Bytes)
		}
		p.Volumes = append(p.Volumes, policy.Volume{Name: v.Stats.Name, Disk: of})
	}
	p.Ephemeral = both(p.Ephemeral, taken(used.Other).Bytes)
	return p
}

func taken(s *statsapi.FsStats) (d policy.Disk) {
	if s == nil {
		return d
	}
	if s.UsedBytes != nil {
		d.Bytes = policy.Measured(number(*s.UsedBytes))
	}
	if s.InodesUsed != nil {
		d.Inodes = policy.Measured(number(*s.InodesUsed))
	}
	return d
}

// both adds figures of which either may not be known.
func both(a, b policy.Measurement) policy.Measurement {
	if !a.Known || !b.Known {
		return policy.Measurement{Value: a.Value + b.Value, Known: a.Known || b.Known}
	}
	return policy.Measured(a.Value + min(b.Value, math.MaxInt64-a.Value))
}

func figure(f cgroups.Number) policy.Measurement {
	return policy.Measurement{Value: number(f.Value), Known: f.Known}
}

func number(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func seconds(n int32) time.Duration { return time.Duration(max(n, 0)) * time.Second }
