package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Termination is how to stop a pod.
type Termination struct {
	// Stages are worked off in order, the containers of one stage all at
	// once: the main containers, then the restartable init containers one by
	// one, the last of the spec first.
	Stages [][]Stop
	// Sandboxes are stopped after that, the newest first: all that exist,
	// ready or not, since one that is not ready may still hold an address.
	Sandboxes []string
}

// Stop is one container to stop.
type Stop struct {
	ID, Name string
	Grace    time.Duration // what the pod asks for; the caller may shorten it
}

// Terminate lists what has to be stopped until nothing of the pod runs. The
// pod may be nil where its spec is not known any more; then the containers
// stop all at once, each with the grace period that it was created with.
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
	stages := make([][]Stop, 1+len(sidecars))
	for i := range o.Containers {
		c := &o.Containers[i]
		if !mayRun(c) {
			continue
		}
		stage := 1 + slices.IndexFunc(sidecars, func(s *v1.Container) bool { return s.Name == c.Name })
		stages[stage] = append(stages[stage], Stop{ID: c.ID, Name: c.Name, Grace: graceOf(p, c)})
	}
	for _, stage := range stages {
		if len(stage) > 0 {
			t.Stages = append(t.Stages, stage)
		}
	}
	for i := range o.Sandboxes {
		t.Sandboxes = append(t.Sandboxes, o.Sandboxes[i].ID)
	}
	return t
}

func graceOf(p *v1.Pod, c *container.Container) time.Duration {
	switch {
	case p != nil:
		return pod.GracePeriod(p)
	case c.GracePeriod >= 0:
		return c.GracePeriod
	default:
		return v1.DefaultTerminationGracePeriodSeconds * time.Second
	}
}
