package agent

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
)

// orphans are the containers that run, by the runtime's word, of pods that end
// and have no status, since nobody knows their spec: what went while no agent
// ran. The runtime is asked only where there are such pods.
func (v *view) orphans(ctx context.Context, rt container.Containers) ([]reaper.Container, error) {
	ending := v.unknown()
	if len(ending) == 0 {
		return nil, nil
	}
	told, err := v.node.ask(ctx)
	if err != nil {
		return nil, err
	}
	node := v.node.node(told.cgroupDriver)
	held, err := rt.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, err
	}
	var out []reaper.Container
	for _, c := range held {
		id, ok := container.IdentityOf(c.GetLabels())
		if _, ends := ending[id.UID]; !ok || !ends {
			continue
		}
		out = append(out, reaper.Container{
			Ref: pod.Ref{UID: id.UID, Namespace: id.Namespace, Name: id.Name}, Name: c.GetLabels()[container.LabelContainerName], ID: c.GetId(),
			Cgroup: criconfig.ContainerCgroup(v.groupOf(id.UID, node), c.GetId(), node),
		})
	}
	return out, nil
}

// unknown are the pods that end and have no status.
func (v *view) unknown() map[types.UID]podworker.State {
	states := v.workers.States()
	maps.DeleteFunc(states, func(_ types.UID, s podworker.State) bool { return s != podworker.Terminating })
	if len(states) == 0 {
		return nil
	}
	for _, e := range v.statuses.List() {
		delete(states, e.Pod.UID)
	}
	return states
}

// groupOf is the cgroup of a pod whose class nobody knows; where it has none,
// one that does not exist.
func (v *view) groupOf(uid types.UID, n *criconfig.Node) string {
	paths := criconfig.PodCgroups(uid, n)
	return paths[max(slices.IndexFunc(paths, v.tree.Exists), 0)]
}
