package spec

import (
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resources sets the cgroup and its limits (WithResources in opts/spec_linux_opts.go). Zero
// means not set. Memory is in bytes, CPU time in microseconds.
func (b *builder) resources() error {
	b.spec.Linux.CgroupsPath = cgroupsPath(b.Sandbox.GetLinux().GetCgroupParent(), b.ID)
	in := b.Config.GetLinux().GetResources()
	if in == nil {
		return nil
	}
	devices := b.spec.Linux.Resources.Devices
	b.spec.Linux.Resources = Resources(in, b.Node)
	b.spec.Linux.Resources.Devices = devices
	return nil
}

// Resources returns limits in the form of the OCI spec, without devices.
func Resources(in *runtimeapi.LinuxContainerResources, n *Node) *specs.LinuxResources {
	out := &specs.LinuxResources{CPU: cpuLimits(in), Memory: memoryLimits(in, n), Unified: maps.Clone(in.GetUnified())}
	if n.HugeTLB { // without the controller the limits are left out, as tolerate_missing_hugetlb_controller does
		for _, l := range in.GetHugepageLimits() {
			out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: l.GetPageSize(), Limit: l.GetLimit()})
		}
	}
	return out
}

func cpuLimits(in *runtimeapi.LinuxContainerResources) *specs.LinuxCPU {
	return &specs.LinuxCPU{
		Shares: nonZero(uint64(in.GetCpuShares())),
		Quota:  nonZero(in.GetCpuQuota()),
		Period: nonZero(uint64(in.GetCpuPeriod())),
		Cpus:   in.GetCpusetCpus(),
		Mems:   in.GetCpusetMems(),
	}
}

// memoryLimits returns the limits of memory and of memory with swap. If only memory is
// limited, both are equal, so that the container cannot swap.
func memoryLimits(in *runtimeapi.LinuxContainerResources, n *Node) *specs.LinuxMemory {
	out := &specs.LinuxMemory{Limit: nonZero(in.GetMemoryLimitInBytes())}
	if n.SwapAccounting {
		out.Swap = nonZero(in.GetMemorySwapLimitInBytes())
		if out.Swap == nil {
			out.Swap = nonZero(in.GetMemoryLimitInBytes())
		}
	}
	return out
}

func nonZero[T int64 | uint64](n T) *T {
	if n == 0 {
		return nil
	}
	return &n
}
