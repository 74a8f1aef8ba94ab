package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/cgroups"
)

// ContainerStats returns what a container uses. One that does not run uses its writable layer
// alone.
func (d *Driver) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := d.container(id)
	if err != nil {
		return nil, err
	}
	s, err := d.sandbox(c.sandboxID)
	if err != nil {
		return nil, err
	}
	status := c.snapshot()
	out := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: id, Metadata: status.GetMetadata(), Labels: status.GetLabels(), Annotations: status.GetAnnotations(),
	}}
	if out.Cpu, out.Memory, err = d.usage(cgroupOf(s, id)); err != nil {
		return nil, fmt.Errorf("read usage of container %q: %w", id, err)
	}
	used, err := d.Store.SnapshotUsage(ctx, id)
	switch {
	case errors.Is(err, container.ErrNotFound): // of an earlier boot
		return out, nil
	case err != nil:
		return nil, err
	}
	out.WritableLayer = &runtimeapi.FilesystemUsage{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: d.root(id)},
		UsedBytes: value(used.Size), InodesUsed: value(used.Inodes),
	}
	return out, nil
}

// PodSandboxStats returns what a sandbox uses with its containers.
func (d *Driver) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	s, err := d.sandbox(id)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Id: id, Metadata: s.config.GetMetadata(), Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations()},
		Linux:      &runtimeapi.LinuxPodSandboxStats{},
	}
	if parent := s.config.GetLinux().GetCgroupParent(); parent != "" {
		if out.Linux.Cpu, out.Linux.Memory, err = d.usage(spec.ParentCgroup(parent)); err != nil {
			return nil, fmt.Errorf("read usage of sandbox %q: %w", id, err)
		}
	}
	for _, c := range d.inSandbox(id) {
		stats, err := d.ContainerStats(ctx, c.id)
		if errors.Is(err, container.ErrNotFound) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out.Linux.Containers = append(out.Linux.Containers, stats)
	}
	return out, nil
}

// usage reads a cgroup. It returns nils if there is none.
func (d *Driver) usage(cgroup string) (*runtimeapi.CpuUsage, *runtimeapi.MemoryUsage, error) {
	var s cgroups.Stats
	err := d.Cgroups.NewReader().Read(cgroup, cgroups.PartCPU|cgroups.PartMemory|cgroups.PartMemoryMax, &s)
	if errors.Is(err, cgroups.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	now := time.Now().UnixNano()
	cpu := &runtimeapi.CpuUsage{Timestamp: now}
	if s.CPU.Usage.Known {
		cpu.UsageCoreNanoSeconds = &runtimeapi.UInt64Value{Value: s.CPU.Usage.Value * uint64(time.Microsecond)}
	}
	memory := &runtimeapi.MemoryUsage{
		Timestamp: now, WorkingSetBytes: known(s.Memory.WorkingSet()), UsageBytes: known(s.Memory.Usage()), RssBytes: known(s.Memory.Anon),
		PageFaults: known(s.Memory.Faults), MajorPageFaults: known(s.Memory.MajorFaults),
	}
	if most, set := s.Memory.Max, s.Memory.WorkingSet(); most.Known && most.Value != cgroups.NoLimit && set.Known {
		memory.AvailableBytes = &runtimeapi.UInt64Value{Value: most.Value - min(most.Value, set.Value)}
	}
	return cpu, memory, nil
}

func known(n cgroups.Number) *runtimeapi.UInt64Value {
	if !n.Known {
		return nil
	}
	return &runtimeapi.UInt64Value{Value: n.Value}
}

func value(n int64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: uint64(max(n, 0))} }
