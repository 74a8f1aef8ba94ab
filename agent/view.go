package agent

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/cgroups"
)

// view shows the pods to whoever asks at the board. Memory is read from the
// cgroups then, and never else.
type view struct {
	statuses *podstatus.Store
	workers  *podworker.Workers
	tree     *cgroups.Tree
	node     *nodeFacts
}

// pods are the pods with their memory and their logs.
func (v *view) pods(context.Context) []local.Pod {
	node, _ := v.node.peek() // without it they are shown without both
	out := v.list()
	for i := range out {
		v.measure(&out[i], node)
	}
	return out
}

// list is the pods with their statuses.
func (v *view) list() []local.Pod {
	states := v.workers.States()
	entries := v.statuses.List()
	out := make([]local.Pod, len(entries))
	for i, e := range entries {
		shown := *e.Pod
		shown.Status = *e.Status
		out[i] = local.Pod{Pod: &shown}
		if state, ok := states[shown.UID]; ok {
			out[i].WorkerState = state.String()
		}
	}
	return out
}

// measure fills in what the status does not tell.
func (v *view) measure(p *local.Pod, node *criconfig.Node) {
	cgroup := ""
	if v.tree != nil && node != nil {
		cgroup = criconfig.PodCgroup(p.Pod, node)
		p.MemoryBytes = v.memory(cgroup)
	}
	for status := range pod.ContainerStatuses(&p.Pod.Status) {
		id := idOf(status)
		if id == "" {
			continue
		}
		c := local.Container{Name: status.Name, ID: id, LogPath: v.logPath(p.Pod, node, status.Name, int(status.RestartCount))}
		if cgroup != "" && status.State.Running != nil {
			c.MemoryBytes = v.memory(criconfig.ContainerCgroup(cgroup, id, node))
		}
		p.Containers = append(p.Containers, c)
	}
}

// idOf is the runtime's ID of a container, or "".
func idOf(c *v1.ContainerStatus) string {
	_, id, _ := strings.Cut(c.ContainerID, "://")
	return id
}

func (v *view) memory(cgroup string) uint64 {
	m, err := v.tree.Memory(cgroup)
	if err != nil {
		return 0 // it ended meanwhile
	}
	return m.WorkingSet
}

func (v *view) logPath(p *v1.Pod, node *criconfig.Node, container string, restarts int) string {
	if node == nil {
		return ""
	}
	return criconfig.LogDirectory(p, node) + "/" + criconfig.LogPath(container, restarts)
}
