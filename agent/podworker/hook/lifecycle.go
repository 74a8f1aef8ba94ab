// Package hook runs the postStart and preStop hooks of containers. It reports
// their failures and computes the rest of the grace period. The caller decides
// when a hook runs and how a failed hook affects its container.
package hook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// Reasons of events and of waiting containers are the kubelet's
// (pkg/kubelet/events/event.go, pkg/kubelet/kuberuntime/kuberuntime_container.go).
const (
	ReasonFailedPostStart = "FailedPostStartHook"
	ReasonFailedPreStop   = "FailedPreStopHook"
	// WaitingPostStart is the waiting reason of a container whose postStart
	// hook failed.
	WaitingPostStart = "PostStartHookError"

	reasonFallback = "LifecycleHTTPFallback"
)

// Error is the failure of a hook.
type Error struct {
	// Reason and Message are for the event. The message omits the cause,
	// because a server's response may contain secrets.
	Reason, Message string
	// Detail is for the container's status, as upstream has it: the cause and,
	// for a command, its output.
	Detail string
	Err    error
}

// Error returns the message and the cause, without a command's output.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Message, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// HandlerRunner runs the action of a hook. *handler.Runner implements it.
type HandlerRunner interface {
	Hook(ctx context.Context, h *v1.LifecycleHandler, t handler.Target) (note string, err error)
}

// Runner runs hooks. It is safe for concurrent use and has no state.
type Runner struct {
	hooks  HandlerRunner
	events *event.Recorder
}

// New returns a Runner. It starts no goroutines.
func New(hooks HandlerRunner, events *event.Recorder) *Runner {
	return &Runner{hooks: hooks, events: events}
}

// PostStart runs the postStart hook of c, which must have one. It blocks until
// the hook or ctx ends; the API defines no other limit. podIPs are the pod's
// addresses, the primary first, or the node's addresses with hostNetwork. The
// error is an *Error.
func (r *Runner) PostStart(ctx context.Context, ref pod.Ref, c *v1.Container, containerID string, podIPs []string) error {
	err := r.run(ctx, ref, c, containerID, podIPs, c.Lifecycle.PostStart)
	if err != nil {
		err.Reason, err.Message = ReasonFailedPostStart, "PostStartHook failed"
		return err
	}
	return nil
}

// PreStop runs the preStop hook h. It may come from the running container's own
// record if the spec is no longer known. PreStop blocks until the hook or ctx ends.
// The caller sets the deadline of ctx to the end of the grace period; as upstream, a
// hook that reaches the deadline is no error. c needs only a name. The error is an
// *Error.
func (r *Runner) PreStop(ctx context.Context, ref pod.Ref, c *v1.Container, containerID string, podIPs []string, h *v1.LifecycleHandler) error {
	err := r.run(ctx, ref, c, containerID, podIPs, h)
	if err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err.Reason, err.Message = ReasonFailedPreStop, "PreStopHook failed"
		return err
	}
	return nil
}

func (r *Runner) run(ctx context.Context, ref pod.Ref, c *v1.Container, containerID string, podIPs []string, h *v1.LifecycleHandler) *Error {
	t := handler.Target{ContainerID: containerID, Container: c}
	if len(podIPs) > 0 {
		t.IP = podIPs[0]
	}
	note, err := r.hooks.Hook(ctx, h, t)
	if err != nil {
		return &Error{Detail: detail(ref, c, h, err), Err: err}
	}
	if note != "" {
		r.events.Warning(ref, reasonFallback, note)
	}
	return nil
}

// detail formats a failure as upstream does (pkg/kubelet/lifecycle/handlers.go).
func detail(ref pod.Ref, c *v1.Container, h *v1.LifecycleHandler, err error) string {
	where := fmt.Sprintf("for Container %q in Pod %q failed - error: %v", c.Name, fmt.Sprintf("%s_%s(%s)", ref.Name, ref.Namespace, ref.UID), err)
	switch {
	case h.Exec != nil:
		var exit *handler.ExitError
		output := ""
		if errors.As(err, &exit) {
			output = exit.Output
		}
		return fmt.Sprintf("Exec lifecycle hook (%v) %s, message: %q", h.Exec.Command, where, strings.ToValidUTF8(output, "\uFFFD"))
	case h.HTTPGet != nil:
		return fmt.Sprintf("HTTP lifecycle hook (%s) %s", h.HTTPGet.Path, where)
	case h.Sleep != nil:
		return fmt.Sprintf("Sleep lifecycle hook (%d) %s", h.Sleep.Seconds, where)
	}
	return fmt.Sprintf("Cannot run handler: %v", err)
}

// RemainingGracePeriod returns the rest of a container's grace period after its preStop hook
// took elapsed of it. The rest is at least pod.MinGracePeriod, and only whole
// seconds are subtracted (killContainer in
// pkg/kubelet/kuberuntime/kuberuntime_container.go). If total is not positive,
// the caller must not run a hook.
func RemainingGracePeriod(total, elapsed time.Duration) time.Duration {
	return max(max(total, 0)-max(elapsed, 0).Truncate(time.Second), pod.MinGracePeriod)
}
