package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/server/local"
)

// Runtime is the part of container.Runtime that the server uses.
type Runtime interface {
	ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
}

// runningPods serves /runningpods/: all pods that the runtime runs, desired or
// orphaned.
func (s *Server) runningPods(w *deadlineWriter, r *http.Request, _ []string) {
	if !s.acquireSnapshot(w, r) {
		return
	}
	defer s.slots.snapshots.free()
	pods, err := runningPodsOf(r.Context(), s.config.Runtime)
	if err != nil {
		s.config.Log.Warn("cannot list running pods", "error", err)
		local.WriteText(w, http.StatusInternalServerError, err.Error())
		return
	}
	writePods(w, slices.Values(pods))
}

// runningPodsOf returns pods built from the ready sandboxes and the running containers
// (ToAPIPod in pkg/kubelet/container/runtime.go). They are sorted by namespace, name
// and UID, and their containers by name.
func runningPodsOf(ctx context.Context, rt Runtime) ([]*v1.Pod, error) {
	sandboxes, err := rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return nil, fmt.Errorf("list ready sandboxes: %w", err)
	}
	containers, err := rt.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, fmt.Errorf("list running containers: %w", err)
	}
	pods := map[types.UID]*v1.Pod{}
	of := func(labels map[string]string) *v1.Pod {
		id, ok := container.IdentityOf(labels)
		if !ok {
			return nil
		}
		p := pods[id.UID]
		if p == nil {
			p = new(v1.Pod)
			p.UID, p.Namespace, p.Name = id.UID, id.Namespace, id.Name
			pods[id.UID] = p
		}
		return p
	}
	for _, sandbox := range sandboxes {
		of(sandbox.GetLabels())
	}
	for _, c := range containers {
		if p := of(c.GetLabels()); p != nil {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.GetMetadata().GetName(), Image: c.GetImage().GetImage()})
		}
	}
	out := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		slices.SortFunc(p.Spec.Containers, func(a, b v1.Container) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out, nil
}
