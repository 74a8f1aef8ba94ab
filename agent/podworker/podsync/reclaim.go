package podsync

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// RemoveExited removes exited containers with their logs, to free disk space. It removes
// all exited containers of settled pods, whose end is recorded elsewhere. Of other pods
// it keeps the newest started container of each name, which is the only record that the
// container has run, and how often. Without it, a container that has completed would
// start again. The kubelet also removes those (DeleteAllUnusedContainers in
// pkg/kubelet/container/container_gc.go), since it keeps a status of its own. It skips
// pods without a status.
//
// RemoveExited blocks on the runtime. If a pod fails, it continues with the next one and
// returns all errors. It may run concurrently with the pods' workers, which tolerate the
// removal of a container.
func (s *Syncer) RemoveExited(ctx context.Context, settled func(types.UID) bool) error {
	exited := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}
	dead, err := s.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{State: exited})
	if err != nil {
		return fmt.Errorf("list exited containers: %w", err)
	}
	pods := make(map[types.UID]struct{})
	for _, c := range dead {
		if uid := c.GetLabels()[container.LabelPodUID]; uid != "" {
			pods[types.UID(uid)] = struct{}{}
		}
	}
	var errs []error
	for uid := range pods {
		errs = append(errs, s.removeExitedOf(ctx, uid, settled(uid)))
	}
	return errors.Join(errs...)
}

func (s *Syncer) removeExitedOf(ctx context.Context, uid types.UID, settled bool) error {
	p, _, known := s.Statuses.Get(uid)
	if !known {
		return nil // its worker removes everything
	}
	o, err := container.Observe(ctx, s.Runtime, uid)
	if err != nil {
		return err
	}
	var removed []string
	for _, id := range removable(o, settled) {
		if err := s.Runtime.RemoveContainer(ctx, id); err != nil {
			return err
		}
		removed = append(removed, id)
	}
	return s.removeLogsOf(ctx, p, o, removed, false)
}

// removable returns the IDs of the containers that may be removed: of each name the exited
// containers older than the newest one that was started, and all exited ones if the pod is
// settled.
func removable(o *container.Observed, settled bool) (ids []string) {
	stands := make(map[string]bool)
	for i := range o.Containers { // newest first
		c := &o.Containers[i]
		if c.State == container.StateExited && (settled || stands[c.Name]) {
			ids = append(ids, c.ID)
		}
		stands[c.Name] = stands[c.Name] || c.State != container.StateCreated
	}
	return ids
}
