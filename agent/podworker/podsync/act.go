package podsync

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/plan"
)

// act executes one plan in the order that package plan defines. retry is the time of
// the next attempt if a part could not be done yet without being a failure. seen is
// the pod's state after act if act only created a sandbox or started containers, and
// nil otherwise.
func (s *Syncer) act(ctx context.Context, p *v1.Pod, o *container.Observed, a *plan.Actions, f *syncState) (seen *container.Observed, retry time.Time, err error) {
	if a.KillPod {
		whole := plan.Terminate(p, o)
		if err := s.stopper(pod.RefOf(p), o, f, noLimit).containers(ctx, whole); err != nil {
			return nil, time.Time{}, err
		}
		if err := s.sandboxes(ctx, whole.Sandboxes); err != nil {
			return nil, time.Time{}, err
		}
	}
	if err := s.stopper(pod.RefOf(p), o, f, noLimit).kill(ctx, a.Kill); err != nil {
		return nil, time.Time{}, err
	}
	if err := s.prune(ctx, p, o, a); err != nil {
		return nil, time.Time{}, err
	}
	if a.CreateSandbox || len(a.Start) > 0 {
		if seen, retry, err = s.start(ctx, p, o, a, f); err != nil {
			return nil, retry, err
		}
	}
	if a.KillPod || len(a.Kill)+len(a.StopSandboxes)+len(a.Remove)+len(a.RemoveSandboxes) > 0 {
		seen = nil
	}
	return seen, retry, nil
}

// stopOldSandboxes stops sandboxes of an earlier boot, once in the life of the agent. The
// runtime then releases their addresses, which network plugins may keep on the disk. It
// waits for a start slot, behind the pods that start.
func (s *Syncer) stopOldSandboxes(ctx context.Context, o *container.Observed, f *syncState) error {
	var old []string
	for i := 1; i < len(o.Sandboxes); i++ { // the first one is the newest
		b := &o.Sandboxes[i]
		if b.BootID != "" && s.BootID != "" && b.BootID != s.BootID && !slices.Contains(f.stoppedSandboxes, b.ID) {
			old = append(old, b.ID)
		}
	}
	if len(old) == 0 {
		return nil
	}
	if err := f.slot.acquire(ctx, s.startSlots); err != nil {
		return err
	}
	defer f.slot.release()
	if err := s.sandboxes(ctx, old); err != nil {
		return err
	}
	f.stoppedSandboxes = append(f.stoppedSandboxes, old...)
	return nil
}

// prune stops and removes the containers and sandboxes that the plan removes.
func (s *Syncer) prune(ctx context.Context, p *v1.Pod, o *container.Observed, a *plan.Actions) error {
	if err := s.sandboxes(ctx, a.StopSandboxes); err != nil {
		return err
	}
	for _, id := range a.Remove {
		if err := s.Runtime.RemoveContainer(ctx, id); err != nil {
			return err
		}
	}
	if !a.Reset {
		if err := s.removeLogsOf(ctx, p, o, a.Remove, true); err != nil {
			return err
		}
	}
	for _, id := range a.RemoveSandboxes {
		if err := s.removeSandbox(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// removeLogsOf removes the logs and termination messages of removed containers.
// Otherwise a crash loop would leave a set of them for each start. orphans also removes
// the messages to which no container belongs. Only the pod's worker may set it, since
// a container that is being created has such a message.
func (s *Syncer) removeLogsOf(ctx context.Context, p *v1.Pod, o *container.Observed, removed []string, orphans bool) error {
	if len(removed) == 0 {
		return nil
	}
	node, err := s.Node(ctx)
	if err != nil {
		return err
	}
	logs := s.logsOf(pod.RefOf(p), node)
	for i := range o.Containers {
		if !slices.Contains(removed, o.Containers[i].ID) {
			continue
		}
		name, count := o.Containers[i].Name, o.Containers[i].RestartCount
		var keep []string
		shared := false // a container that was never started shares its number with the next
		for j := range o.Containers {
			if c := &o.Containers[j]; c.Name == name && !slices.Contains(removed, c.ID) {
				keep = append(keep, c.TerminationMessagePath)
				shared = shared || c.RestartCount == count
			}
		}
		if err := logs.drop(name, o.Containers[i].ID, count, shared); err != nil {
			return err
		}
		unused := func(path string) bool {
			return path == o.Containers[i].TerminationMessagePath || orphans && !slices.Contains(keep, path)
		}
		if err := s.Volumes.RemoveTerminationMessages(p.UID, name, unused); err != nil {
			return err
		}
	}
	return nil
}

// removeSandbox stops a sandbox, which releases its address, and removes it.
func (s *Syncer) removeSandbox(ctx context.Context, id string) error {
	if err := s.Runtime.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	return s.Runtime.RemovePodSandbox(ctx, id)
}
