package podsync

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/plan"
	"github.com/tinylet/tinylet/agent/pod"
)

// act executes one plan in the order that package plan gives. retry is when
// to try again what could not be done yet without being a fault.
func (s *Syncer) act(ctx context.Context, p *v1.Pod, o *container.Observed, a *plan.Actions, f *facts) (retry time.Time, err error) {
	if a.KillPod {
		if err := s.stopAll(ctx, pod.RefOf(p), plan.Terminate(p, o), noLimit); err != nil {
			return time.Time{}, err
		}
	}
	if err := s.kill(ctx, p, a.Kill); err != nil {
		return time.Time{}, err
	}
	if err := s.prune(ctx, p, o, a); err != nil {
		return time.Time{}, err
	}
	if !a.CreateSandbox && len(a.Start) == 0 {
		return time.Time{}, nil
	}
	return s.start(ctx, p, o, a, f)
}

// noLimit leaves each container the grace period that the plan gives it.
const noLimit = time.Duration(1<<63 - 1)

// kill stops single containers, all at once.
func (s *Syncer) kill(ctx context.Context, p *v1.Pod, kills []plan.Kill) error {
	var wg sync.WaitGroup
	errs := make([]error, len(kills))
	for i, k := range kills {
		s.Events.Normal(pod.RefOf(p), k.Reason, k.Message)
		wg.Go(func() {
			if err := s.Runtime.StopContainer(ctx, k.ID, k.Grace); err != nil {
				errs[i] = inContainer(k.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stopAll stops a whole pod: the containers stage by stage, then the
// sandboxes. No container gets more time than limit.
func (s *Syncer) stopAll(ctx context.Context, ref pod.Ref, t plan.Termination, limit time.Duration) error {
	for _, stage := range t.Stages {
		var wg sync.WaitGroup
		errs := make([]error, len(stage))
		for i, c := range stage {
			s.Events.Normal(ref, plan.ReasonKilling, "Stopping container "+c.Name)
			wg.Go(func() {
				if err := s.Runtime.StopContainer(ctx, c.ID, min(c.Grace, limit)); err != nil {
					errs[i] = inContainer(c.Name, err)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	for _, id := range t.Sandboxes {
		if err := s.Runtime.StopPodSandbox(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// prune removes what is not needed as evidence any more.
func (s *Syncer) prune(ctx context.Context, p *v1.Pod, o *container.Observed, a *plan.Actions) error {
	for _, id := range a.StopSandboxes {
		if err := s.Runtime.StopPodSandbox(ctx, id); err != nil {
			return err
		}
	}
	for _, id := range a.Remove {
		if err := s.Runtime.RemoveContainer(ctx, id); err != nil {
			return err
		}
	}
	if err := s.dropTraces(ctx, p, o, a.Remove); err != nil {
		return err
	}
	for _, id := range a.RemoveSandboxes {
		if err := s.removeSandbox(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// dropTraces removes the logs and termination messages of removed containers:
// a crash loop would else leave some for each start.
func (s *Syncer) dropTraces(ctx context.Context, p *v1.Pod, o *container.Observed, removed []string) error {
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
		name := o.Containers[i].Name
		if err := logs.drop(name, o.Containers[i].ID, o.Containers[i].RestartCount); err != nil {
			return err
		}
		var keep []string
		for j := range o.Containers {
			if c := &o.Containers[j]; c.Name == name && !slices.Contains(removed, c.ID) {
				keep = append(keep, c.TerminationMessagePath)
			}
		}
		if err := s.Volumes.DropMessages(p.UID, name, keep); err != nil {
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
	if err := s.Runtime.RemovePodSandbox(ctx, id); err != nil {
		return err
	}
	return nil
}
