package stats

import (
	"context"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/cgroups"
)

// Usage returns what the node and its pods use, for `tinylet top` and the status page: the
// usage of running pods, and the state of the others.
func (s *Source) Usage(ctx context.Context) (*local.Usage, error) {
	summary, err := s.Summary(ctx, true)
	if err != nil {
		return nil, err
	}
	load, err := machine.ReadLoad(machine.Roots{}, time.Now())
	if err != nil {
		return nil, err
	}
	n := &summary.Node
	u := &local.Usage{
		Time: time.Now(),
		Node: local.NodeUsage{
			Name: n.NodeName, CPUNanoCores: cpuOf(n.CPU), Cores: runtime.NumCPU(), MemoryBytes: memoryOf(n.Memory),
			MemoryAvailableBytes: load.Available, MemoryCapacityBytes: load.Memory, Pressure: s.pressure(),
		},
	}
	for i := range n.SystemContainers {
		c := &n.SystemContainers[i]
		group := &local.CgroupUsage{Name: c.Name, CPUNanoCores: cpuOf(c.CPU), MemoryBytes: memoryOf(c.Memory)}
		switch c.Name {
		case statsapi.SystemContainerKubelet:
			u.Agent = group
		case statsapi.SystemContainerRuntime:
			u.Runtime = group
		}
	}
	measured := make(map[string]*statsapi.PodStats, len(summary.Pods))
	for i := range summary.Pods {
		measured[summary.Pods[i].PodRef.UID] = &summary.Pods[i]
	}
	states := s.Workers.States()
	classes := map[v1.PodQOSClass]*local.CgroupUsage{}
	for _, e := range s.Statuses.List() {
		p := podUsage(&e, states[e.Pod.UID], measured[string(e.Pod.UID)])
		u.Pods = append(u.Pods, p)
		class := pod.QOSClass(e.Pod)
		if classes[class] == nil {
			classes[class] = &local.CgroupUsage{Name: string(class)}
		}
		classes[class].MemoryBytes += p.MemoryBytes
		classes[class].CPUNanoCores = sum(classes[class].CPUNanoCores, p.CPUNanoCores)
	}
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if g := classes[class]; g != nil {
			u.Classes = append(u.Classes, *g)
		}
	}
	return u, nil
}

func podUsage(e *pod.Entry, state podworker.State, s *statsapi.PodStats) local.PodUsage {
	shown := *e.Pod
	shown.Status = *e.Status
	summed := pod.Summarize(&shown, state == podworker.Terminating)
	u := local.PodUsage{
		Namespace: shown.Namespace, Name: shown.Name, UID: string(shown.UID), QOSClass: string(pod.QOSClass(e.Pod)),
		Status: summed.Status, Restarts: summed.Restarts,
	}
	if s != nil {
		u.CPUNanoCores, u.MemoryBytes = cpuOf(s.CPU), memoryOf(s.Memory)
	}
	for c := range pod.ContainerStatuses(e.Status) {
		used := local.ContainerUsage{Name: c.Name, State: "Waiting", Restarts: int(c.RestartCount)}
		switch {
		case c.State.Running != nil:
			used.State = "Running"
		case c.State.Terminated != nil:
			used.State = "Terminated"
		}
		if s != nil {
			for i := range s.Containers {
				if of := &s.Containers[i]; of.Name == c.Name {
					used.CPUNanoCores, used.MemoryBytes = cpuOf(of.CPU), memoryOf(of.Memory)
				}
			}
		}
		u.Containers = append(u.Containers, used)
	}
	return u
}

func cpuOf(c *statsapi.CPUStats) *uint64 {
	if c == nil {
		return nil
	}
	return c.UsageNanoCores
}

func memoryOf(m *statsapi.MemoryStats) uint64 {
	if m == nil || m.WorkingSetBytes == nil {
		return 0
	}
	return *m.WorkingSetBytes
}

// pressure returns the node's PSI, or nil if the kernel does not support it. A Summary of CPU
// and memory only does not contain that of I/O.
func (s *Source) pressure() *local.Pressure {
	var at cgroups.Stats
	if s.Tree.NewReader().Read("/", cgroups.PartPressure, &at) != nil || !at.CPUPressure.Some.Known || !at.MemoryPressure.Some.Known {
		return nil
	}
	return &local.Pressure{CPU: at.CPUPressure.Some.Avg10, Memory: at.MemoryPressure.Some.Avg10, IO: at.IOPressure.Some.Avg10}
}

// sum adds two values, each of which may be nil (unknown).
func sum(a, b *uint64) *uint64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	both := *a + *b
	return &both
}
