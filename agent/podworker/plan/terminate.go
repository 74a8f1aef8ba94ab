package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Termination is how to stop a pod. The grace periods of all containers run
// from the same moment, and so do their PreStop hooks, including those of
// sidecars. A container gets its stop signal when its hook is done and the
// earlier stages have ended, or when its grace period is over
// (pkg/kubelet/kuberuntime/kuberuntime_termination_order.go).
type Termination struct {
	// Stages are executed in order, the containers of one stage all at once:
	// the main containers, then the restartable init containers one by one, the
	// last of the spec first.
	Stages [][]Kill
	// Sandboxes are stopped after that, newest first: all that exist, ready or
	// not, since one that is not ready may still hold an address.
	Sandboxes []string
}

// Terminate lists the containers and sandboxes that have to be stopped to terminate the
// pod. p is nil if its spec is unknown. Then all containers are in one stage, each with
// the grace period that it was created with, or else 30 s.
func Terminate(p *v1.Pod, o *container.Observed) Termination {
	var t Termination
	if o == nil {
		return t
	}
	var sidecars []*v1.Container // the first to stop comes first
	if p != nil {
		for i := range slices.Backward(p.Spec.InitContainers) {
			if c := &p.Spec.InitContainers[i]; pod.IsRestartableInit(c) {
				sidecars = append(sidecars, c)
			}
		}
	}
	stages := make([][]Kill, 1+len(sidecars))
	for i := range o.Containers {
		c := &o.Containers[i]
		if !mayRun(c) {
			continue
		}
		stage := 1 + slices.IndexFunc(sidecars, func(s *v1.Container) bool { return s.Name == c.Name })
		stages[stage] = append(stages[stage], stopOf(p, c))
	}
	t.Stages = slices.DeleteFunc(stages, func(stage []Kill) bool { return len(stage) == 0 })
	for i := range o.Sandboxes {
		t.Sandboxes = append(t.Sandboxes, o.Sandboxes[i].ID)
	}
	return t
}

func stopOf(p *v1.Pod, cur *container.Container) Kill {
	var c *v1.Container
	if p != nil {
		c, _ = pod.FindContainer(&p.Spec, cur.Name)
	}
	return Kill{
		ID: cur.ID, Name: cur.Name, Message: "Stopping container " + cur.Name,
		Grace: graceOf(p, cur), PreStop: preStopOf(c, cur), Container: c,
	}
}

// preStopOf returns the hook of the container's spec c, or, if c is nil, the
// one that the container was created with.
func preStopOf(c *v1.Container, cur *container.Container) *v1.LifecycleHandler {
	switch {
	case c == nil:
		return cur.PreStop
	case c.Lifecycle == nil:
		return nil
	default:
		return c.Lifecycle.PreStop
	}
}

func graceOf(p *v1.Pod, c *container.Container) time.Duration {
	switch {
	case p != nil:
		return pod.TerminationGracePeriod(p)
	case c.GracePeriod >= 0:
		return c.GracePeriod
	default:
		return v1.DefaultTerminationGracePeriodSeconds * time.Second
	}
}
