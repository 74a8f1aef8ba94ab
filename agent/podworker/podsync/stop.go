package podsync

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/hook"
	"github.com/tinylet/tinylet/agent/podworker/plan"
)

// noLimit is the limit of a stopper that does not shorten the grace periods of the plan.
const noLimit = time.Duration(1<<63 - 1)

// stopper stops containers of one pod. All preStop hooks begin at once. The stop
// signals follow stage by stage. Both count against each container's grace period
// (killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go).
type stopper struct {
	*Syncer
	ref   pod.Ref
	state *syncState
	ips   []string
	limit time.Duration // upper bound of each container's grace period
	begun time.Time
}

func (s *Syncer) stopper(ref pod.Ref, o *container.Observed, f *syncState, limit time.Duration) *stopper {
	st := &stopper{Syncer: s, ref: ref, state: f, limit: limit, begun: s.now()}
	if sandbox := o.Sandbox(); sandbox != nil {
		st.ips = sandbox.IPs
	}
	if len(st.ips) == 0 {
		st.ips = s.HostIPs()
	}
	return st
}

// kill stops single containers concurrently.
func (st *stopper) kill(ctx context.Context, kills []plan.Kill) error {
	st.announce(kills)
	return st.together(ctx, kills, nil)
}

// sandboxes stops sandboxes one after the other, until an error.
func (s *Syncer) sandboxes(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := s.Runtime.StopPodSandbox(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// containers stops a pod's containers stage by stage. If a container cannot be stopped,
// the others of its stage are stopped nevertheless, and the later stages fail unless
// their grace period is over. It returns the errors of the first stage that failed.
func (st *stopper) containers(ctx context.Context, t plan.Termination) error {
	var wg sync.WaitGroup
	stages := make([]*stage, len(t.Stages))
	for i, containers := range t.Stages {
		mine := &stage{over: make(chan struct{})}
		stages[i] = mine
		var earlier *stage
		if i > 0 {
			earlier = stages[i-1]
		}
		st.announce(containers)
		wg.Go(func() {
			defer close(mine.over)
			mine.err = st.together(ctx, containers, earlier)
		})
	}
	wg.Wait()
	for _, s := range stages {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// stage is the set of containers that are stopped at the same time.
type stage struct {
	over chan struct{} // closed when the stage has stopped or failed
	err  error         // set before over is closed
}

// announce emits the Killing events.
func (st *stopper) announce(containers []plan.Kill) {
	for _, c := range containers {
		st.Events.Normal(st.ref, plan.ReasonKilling, c.Message)
	}
}

// together stops the containers concurrently, and joins the errors.
func (st *stopper) together(ctx context.Context, containers []plan.Kill, earlier *stage) error {
	var wg sync.WaitGroup
	errs := make([]error, len(containers))
	for i, c := range containers {
		wg.Go(func() { errs[i] = st.stop(ctx, c, earlier) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stop runs the preStop hook, waits for the earlier stage while the grace
// period lasts, and stops the container. With a grace period of 0 it runs no hook and does
// not wait for the earlier stage. Between the stop signal and SIGKILL is always at least
// the minimum of hook.RemainingGracePeriod.
func (st *stopper) stop(ctx context.Context, c plan.Kill, earlier *stage) error {
	grace := min(c.Grace, st.limit)
	if grace > 0 {
		st.preStop(ctx, c, grace)
		if err := st.await(ctx, earlier, grace); err != nil {
			return err
		}
	}
	grace = hook.RemainingGracePeriod(grace, st.now().Sub(st.begun))
	if err := st.Runtime.StopContainer(ctx, c.ID, grace); err != nil {
		return inContainer(c.Name, err)
	}
	return nil
}

// await blocks until the earlier stage, if there is one, is over or the grace period
// ends. It returns the error of that stage, or the cause of ctx when ctx ends.
func (st *stopper) await(ctx context.Context, earlier *stage, grace time.Duration) error {
	if earlier == nil {
		return nil
	}
	timer := time.NewTimer(grace - st.now().Sub(st.begun))
	defer timer.Stop()
	select {
	case <-earlier.over:
		return earlier.err
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// preStop runs a container's hook for at most the rest of its grace period. A hook that
// has returned is not run again when the termination is repeated. A hook that was
// interrupted by the end of ctx, such as for a shorter grace period, is run again.
func (st *stopper) preStop(ctx context.Context, c plan.Kill, grace time.Duration) {
	if c.PreStop == nil {
		return
	}
	if _, run := st.state.preStopRun.LoadOrStore(c.ID, nil); run {
		return
	}
	limited, cancel := context.WithTimeout(ctx, max(0, grace-st.now().Sub(st.begun)))
	defer cancel()
	err := st.Hooks.PreStop(limited, st.ref, specOf(c), c.ID, st.ips, c.PreStop)
	var bad *hook.Error
	switch {
	case ctx.Err() != nil:
		st.state.preStopRun.Delete(c.ID) // it was interrupted
	case errors.As(err, &bad):
		st.Events.Warning(st.ref, bad.Reason, bad.Message)
	}
}

// specOf returns the container's spec, or one with only the name if the spec is unknown.
func specOf(c plan.Kill) *v1.Container {
	if c.Container != nil {
		return c.Container
	}
	return &v1.Container{Name: c.Name}
}
