package stats

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/cgroups"
)

// Usage returns the resource usage of the node and its pods, for `tinylet top` and the status
// page. Pods that do not run have their state only.
func (s *Source) Usage(ctx context.Context) (*local.Usage, error) {
	g, err := s.collect(ctx, coreParts)
	if err != nil {
		return nil, err
	}
	u := &local.Usage{
		Time: time.Now(),
		Node: local.NodeUsage{
			Name: s.NodeName, Cores: g.machine.Cores,
			MemoryAvailableBytes: g.machine.Available, MemoryCapacityBytes: g.machine.Memory, Pressure: s.pressure(),
		},
		Pods: []local.PodUsage{}, // null in JSON otherwise
	}
	measured := make(map[measuredKey]*row, len(g.rows))
	for i := range g.rows {
		r := &g.rows[i]
		cpu, memory := r.used()
		switch {
		case r.isNode():
			u.Node.CPUNanoCores, u.Node.MemoryBytes = cpu, memory
		case r.container != nil:
			measured[measuredKey{r.pod.UID, r.container.Name}] = r
		case r.pod != nil:
			measured[measuredKey{r.pod.UID, ""}] = r
		case r.system.Name == statsapi.SystemContainerKubelet:
			u.Agent = &local.CgroupUsage{Name: r.system.Name, CPUNanoCores: cpu, MemoryBytes: memory}
		}
	}
	states := s.Workers.States()
	classes := map[v1.PodQOSClass]*local.CgroupUsage{}
	for _, e := range s.Statuses.List() {
		p := podUsage(&e, states[e.Pod.UID], measured)
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

// measuredKey identifies the row of a container, or with the container "" that of its pod.
type measuredKey struct{ podUID, container string }

// used returns the CPU usage in nanocores, nil if it is unknown, and the working set in bytes,
// 0 if it is unknown. r may be nil.
func (r *row) used() (cpu *uint64, memory uint64) {
	if r == nil {
		return nil, 0
	}
	return valuePtr(&r.rate), r.workingSet.Value
}

func podUsage(e *pod.Entry, state podworker.State, measured map[measuredKey]*row) local.PodUsage {
	shown := *e.Pod
	shown.Status = *e.Status
	summed := pod.Summarize(&shown, state == podworker.Terminating)
	u := local.PodUsage{
		Namespace: shown.Namespace, Name: shown.Name, UID: string(shown.UID), QOSClass: string(pod.QOSClass(e.Pod)),
		Status: summed.Status, Restarts: summed.Restarts,
		Containers: []local.ContainerUsage{}, // null in JSON otherwise
	}
	u.CPUNanoCores, u.MemoryBytes = measured[measuredKey{u.UID, ""}].used()
	for c := range pod.ContainerStatuses(e.Status) {
		used := local.ContainerUsage{Name: c.Name, State: "Waiting", Restarts: int(c.RestartCount)}
		switch {
		case c.State.Running != nil:
			used.State = "Running"
		case c.State.Terminated != nil:
			used.State = "Terminated"
		}
		used.CPUNanoCores, used.MemoryBytes = measured[measuredKey{u.UID, c.Name}].used()
		u.Containers = append(u.Containers, used)
	}
	return u
}

// pressure returns the node's PSI, or nil if the kernel does not support it.
func (s *Source) pressure() *local.Pressure {
	var at cgroups.Stats
	if s.Tree.NewReader().Read("/", cgroups.PartPressure, &at) != nil || !at.CPUPressure.Some.Known || !at.MemoryPressure.Some.Known {
		return nil
	}
	return &local.Pressure{CPU: at.CPUPressure.Some.Avg10, Memory: at.MemoryPressure.Some.Avg10, IO: at.IOPressure.Some.Avg10}
}

// sum adds two values. nil is unknown: it returns the other value.
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
