package local

import (
	"context"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/cgroups"
)

// PodLister lists the pods for the local API and the status page.
type PodLister struct {
	Statuses *podstatus.Store
	Workers  *podworker.Workers
	Tree     *cgroups.Tree // nil without cgroups
	Node     *nodeinfo.Info
}

// List returns the pods with their statuses.
func (l *PodLister) List() []Pod {
	states := l.Workers.States()
	entries := l.Statuses.List()
	out := make([]Pod, len(entries))
	for i, e := range entries {
		p := *e.Pod
		p.Status = *e.Status
		out[i] = Pod{Pod: &p}
		if state, ok := states[p.UID]; ok {
			out[i].WorkerState = state.String()
		}
	}
	return out
}

// Measured returns the pods with their statuses, memory and log paths. It reads the memory from
// the cgroups. Until the runtime has reported its cgroup driver, both are omitted.
func (l *PodLister) Measured(context.Context) []Pod {
	node, _ := l.Node.Peek()
	out := l.List()
	for i := range out {
		l.measure(&out[i], node)
	}
	return out
}

func (l *PodLister) measure(p *Pod, node *criconfig.Node) {
	p.Containers = []Container{} // null in JSON otherwise
	cgroup := ""
	if l.Tree != nil && node != nil {
		cgroup = criconfig.PodCgroup(p.Pod, node)
		p.MemoryBytes = l.memory(cgroup)
	}
	for status := range pod.ContainerStatuses(&p.Pod.Status) {
		id := pod.ContainerID(status)
		if id == "" {
			continue
		}
		c := Container{Name: status.Name, ID: id}
		if node != nil {
			c.LogPath = criconfig.ContainerLogPath(p.Pod, node, status.Name, int(status.RestartCount))
		}
		if cgroup != "" && status.State.Running != nil {
			c.MemoryBytes = l.memory(criconfig.ContainerCgroup(cgroup, id, node))
		}
		p.Containers = append(p.Containers, c)
	}
}

// memory returns the working set of a cgroup in bytes, 0 if the cgroup is gone.
func (l *PodLister) memory(cgroup string) uint64 {
	bytes, _ := l.Tree.WorkingSet(cgroup)
	return bytes
}
