package streaming

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// Finder finds pods and containers by the newest statuses.
type Finder struct{ Statuses *podstatus.Store }

// Find returns the runtime's IDs of a pod or a container. After a start of the agent the
// status of a restored pod is ContainerCreating until its worker has observed it. Therefore
// Find returns ErrNotRunning only for an observed pod, or after podstatus.ObserveTimeout.
func (f *Finder) Find(ctx context.Context, name Name) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, podstatus.ObserveTimeout)
	defer cancel()
	changed := make(chan struct{}, 1)
	defer f.Statuses.Notify(changed)()
	for {
		e, known := f.newest(name)
		found, err := foundIn(e, known, name)
		if e.Observed || !errors.Is(err, ErrNotRunning) {
			return found, err
		}
		select {
		case <-ctx.Done():
			return found, err
		case <-changed:
		}
	}
}

// foundIn returns the result of Find for a pod. known means that the pod exists.
func foundIn(e pod.Entry, known bool, name Name) (Found, error) {
	switch {
	case !known && name.UID != "":
		return Found{}, fmt.Errorf("pod %s/%s with the UID %s: %w", name.Namespace, name.Pod, name.UID, ErrNotFound)
	case !known:
		return Found{}, fmt.Errorf("pod %s/%s: %w", name.Namespace, name.Pod, ErrNotFound)
	case name.Container != "":
		id, err := runningIn(e, name)
		return Found{SandboxID: e.Sandbox.ID, ContainerID: id}, err
	case e.Sandbox.ID == "":
		return Found{}, fmt.Errorf("pod %s/%s has no sandbox (it is %s): %w", name.Namespace, name.Pod, e.Status.Phase, ErrNotRunning)
	}
	return Found{SandboxID: e.Sandbox.ID}, nil
}

// newest returns the pod with a name; of two, the newer one.
func (f *Finder) newest(name Name) (found pod.Entry, ok bool) {
	for _, e := range f.Statuses.List() {
		if e.Pod.Namespace != name.Namespace || e.Pod.Name != name.Pod || name.UID != "" && e.Pod.UID != types.UID(name.UID) {
			continue
		}
		if !ok || pod.Newer(e.Pod, found.Pod) {
			found, ok = e, true
		}
	}
	return found, ok
}

// runningIn returns the ID of a running container of a pod.
func runningIn(e pod.Entry, name Name) (string, error) {
	if c, _ := pod.FindContainer(&e.Pod.Spec, name.Container); c == nil {
		return "", fmt.Errorf("container %q of pod %s/%s: %w", name.Container, name.Namespace, name.Pod, ErrNotFound)
	}
	c, ok := e.RunningOf(name.Container)
	if !ok {
		state := stateOf(pod.FindContainerStatus(e.Status, name.Container))
		return "", fmt.Errorf("container %q of pod %s/%s is %s: %w", name.Container, name.Namespace, name.Pod, state, ErrNotRunning)
	}
	return c.ID, nil
}

// stateOf returns a container's state for messages.
func stateOf(c *v1.ContainerStatus) string {
	switch {
	case c == nil:
		return "not created yet"
	case c.State.Terminated != nil && c.State.Terminated.Reason == "":
		return fmt.Sprintf("terminated (exit code %d)", c.State.Terminated.ExitCode)
	case c.State.Terminated != nil:
		return fmt.Sprintf("terminated (%s, exit code %d)", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
	case c.State.Waiting != nil && c.State.Waiting.Reason != "":
		return fmt.Sprintf("waiting (%s)", c.State.Waiting.Reason)
	case c.State.Running != nil:
		return "running without an ID"
	}
	return "waiting"
}
