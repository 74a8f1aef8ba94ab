package reaper

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// RunningContainers returns the running containers and the ready sandboxes of pods, by their
// newest statuses. It returns none before node returns a node, whose cgroup driver it needs.
func RunningContainers(entries []pod.Entry, node func() (n *criconfig.Node, ok bool)) (out []Container) {
	n, ok := node()
	if !ok {
		return nil
	}
	for i := range entries {
		e := &entries[i]
		cgroup := criconfig.PodCgroup(e.Pod, n)
		add := func(name, id string) {
			out = append(out, Container{Ref: pod.RefOf(e.Pod), Name: name, ID: id, Cgroup: criconfig.ContainerCgroup(cgroup, id, n)})
		}
		if e.Sandbox.ID != "" {
			add("", e.Sandbox.ID)
		}
		for c := range e.Running() {
			add(c.Name, c.ID)
		}
	}
	return out
}

// Orphans lists the running containers and the ready sandboxes of pods whose spec is not known,
// because the sources removed these pods while no agent ran.
type Orphans struct {
	Runtime Runtime
	Tree    *cgroups.Tree
	// Node returns the node with its cgroup driver. It may block on the runtime.
	Node func(context.Context) (*criconfig.Node, error)
	// Pods returns the UIDs of the pods that terminate without a known spec.
	Pods func() map[types.UID]bool
}

// List returns them. It calls the runtime only if Pods returns any.
func (o *Orphans) List(ctx context.Context) ([]Container, error) {
	pods := o.Pods()
	if len(pods) == 0 {
		return nil, nil
	}
	node, err := o.Node(ctx)
	if err != nil {
		return nil, err
	}
	running, err := o.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, err
	}
	ready, err := o.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return nil, err
	}
	var out []Container
	add := func(labels map[string]string, name, id string) {
		if ref, ok := container.IdentityOf(labels); ok && pods[ref.UID] {
			out = append(out, Container{Ref: ref, Name: name, ID: id, Cgroup: criconfig.ContainerCgroup(o.cgroupOf(ref.UID, node), id, node)})
		}
	}
	for _, c := range running {
		add(c.GetLabels(), c.GetLabels()[container.LabelContainerName], c.GetId())
	}
	for _, s := range ready {
		add(s.GetLabels(), "", s.GetId())
	}
	return out, nil
}

// cgroupOf returns the cgroup of a pod whose QoS class is not known. If the pod has none, it
// returns one that does not exist.
func (o *Orphans) cgroupOf(uid types.UID, n *criconfig.Node) string {
	paths := criconfig.PodCgroups(uid, n)
	return paths[max(slices.IndexFunc(paths, o.Tree.Exists), 0)]
}
