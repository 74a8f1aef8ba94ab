package podsync

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// RemoveDead removes containers that have ended, with their logs, where the
// disk is needed more than what they tell. Of pods that are settled, for whose
// end nothing has to be looked up any more, all go. Of the others the newest
// container of each name stays: it is all that says that it has run, and how
// often, and what has done its work would start over. The kubelet removes those
// too (DeleteAllUnusedContainers in pkg/kubelet/container/container_gc.go), as
// it has a status of its own to go by.
//
// It blocks on the runtime, goes on with the next pod where one fails, and may
// be called beside the pods' workers: a container that is gone is no fault to
// them.
func (s *Syncer) RemoveDead(ctx context.Context, settled func(types.UID) bool) error {
	exited := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}
	dead, err := s.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{State: exited})
	if err != nil {
		return fmt.Errorf("list containers that have ended: %w", err)
	}
	pods := make(map[types.UID]struct{})
	for _, c := range dead {
		if uid := c.GetLabels()[container.LabelPodUID]; uid != "" {
			pods[types.UID(uid)] = struct{}{}
		}
	}
	var errs []error
	for uid := range pods {
		errs = append(errs, s.removeDeadOf(ctx, uid, settled(uid)))
	}
	return errors.Join(errs...)
}

func (s *Syncer) removeDeadOf(ctx context.Context, uid types.UID, settled bool) error {
	p, _, known := s.Statuses.Get(uid)
	if !known {
		return nil // its worker takes away all that is left
	}
	o, err := container.Observe(ctx, s.Runtime, uid)
	if err != nil {
		return err
	}
	var removed []string
	for _, id := range spare(o, settled) {
		if err := s.Runtime.RemoveContainer(ctx, id); err != nil {
			return err
		}
		removed = append(removed, id)
	}
	return s.dropTraces(ctx, p, o, removed)
}

// spare are the containers that may go: of each name those that have ended
// behind the newest one that was started, and that one too if the pod is
// settled.
func spare(o *container.Observed, settled bool) (ids []string) {
	stands := make(map[string]bool)
	for i := range o.Containers { // the newest first
		c := &o.Containers[i]
		if c.State == container.StateExited && (settled || stands[c.Name]) {
			ids = append(ids, c.ID)
		}
		stands[c.Name] = stands[c.Name] || c.State != container.StateCreated
	}
	return ids
}
