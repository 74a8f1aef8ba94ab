// Package hook runs the postStart and preStop hooks of containers and
// owns how they are reported and what they leave of the grace period. When a
// hook runs, and what a failed one means for its container, is decided by the
// caller.
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

// Reasons of events and of waiting containers, as the kubelet words them
// (pkg/kubelet/events/event.go, pkg/kubelet/kuberuntime/kuberuntime_container.go).
const (
	ReasonFailedPostStart = "FailedPostStartHook"
	ReasonFailedPreStop   = "FailedPreStopHook"
	// WaitingPostStart is why a container waits whose postStart hook failed.
	WaitingPostStart = "PostStartHookError"

	reasonFallback = "LifecycleHTTPFallback"
)

// Error says that a hook failed.
type Error struct {
	// Reason and Message are for the event. The message tells nothing of the
	// cause: a server's answer may hold secrets.
	Reason, Message string
	// Detail is for the container's status, as upstream has it: the cause and,
	// for a command, what it wrote.
	Detail string
	Err    error
}

// Error does not have a command's output.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Message, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Hooks runs a hook's action; *handler.Runner does.
type Hooks interface {
	Hook(ctx context.Context, h *v1.LifecycleHandler, t handler.Target) (note string, err error)
}

// Config is what a Runner works with.
type Config struct {
	// Exec runs commands in containers. Not used where Hooks is set.
	Exec handler.Exec
	// Hooks runs the hooks; nil makes an handler.Runner on Exec.
	Hooks  Hooks
	Events *event.Recorder
}

// Runner runs hooks. It is safe for concurrent use and holds no state.
type Runner struct {
	hooks  Hooks
	events *event.Recorder
}

// New makes a Runner; nothing is started.
func New(cfg Config) *Runner {
	if cfg.Hooks == nil {
		cfg.Hooks = handler.New(handler.Config{Exec: cfg.Exec})
	}
	return &Runner{hooks: cfg.Hooks, events: cfg.Events}
}

// PostStart runs the container's postStart hook, if it has one. It blocks
// until the hook has ended or ctx has; nothing else bounds it (the API
// contract). podIPs are the pod's addresses, the primary first, or the node's
// on the host's network. The error is an *Error.
func (r *Runner) PostStart(ctx context.Context, p *v1.Pod, c *v1.Container, containerID string, podIPs []string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	err := r.run(ctx, pod.RefOf(p), c, containerID, podIPs, c.Lifecycle.PostStart)
	if err != nil {
		err.Reason, err.Message = ReasonFailedPostStart, "PostStartHook failed"
		return err
	}
	return nil
}

// PreStop runs a preStop hook: h, which may come from the running
// container's own record where the spec is not known any more, else the one
// that c has. It blocks until the hook has ended or ctx has, which the caller
// ends with the grace period; a hook that was cut off so is no error, as
// upstream has it. c may be bare but for its name, p nil if only the container
// is known. The error is an *Error.
func (r *Runner) PreStop(ctx context.Context, p *v1.Pod, c *v1.Container, containerID string, podIPs []string, h *v1.LifecycleHandler) error {
	if h == nil && c.Lifecycle != nil {
		h = c.Lifecycle.PreStop
	}
	if h == nil {
		return nil
	}
	var ref pod.Ref
	if p != nil {
		ref = pod.RefOf(p)
	}
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

// detail words a failure as upstream does (pkg/kubelet/lifecycle/handlers.go).
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

// minGrace is what every container gets between the stop signal and the kill.
const minGrace = 2 * time.Second

// Grace is what is left of a container's grace period when elapsed of it went
// to its preStop hook: at least two seconds, and whole seconds are taken off
// only (killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go).
// Where total is not positive, no hook is to be run at all.
func Grace(total, elapsed time.Duration) time.Duration {
	return max(max(total, 0)-max(elapsed, 0).Truncate(time.Second), minGrace)
}
