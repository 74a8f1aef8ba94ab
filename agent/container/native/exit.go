package native

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/native/keeper"
	"github.com/tinylet/tinylet/agent/container/native/store"
	"github.com/tinylet/tinylet/agent/wait"
)

// Reasons of ends, as in containerd.
const (
	reasonCompleted = "Completed"
	reasonError     = "Error"
	reasonUnknown   = "Unknown"
	reasonOOMKilled = "OOMKilled"
	// codeUnknown is the exit code of a container whose end was not observed.
	codeUnknown = 255
)

// Run receives the ends of containers from the keeper until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	backoff := wait.Backoff{}
	for ctx.Err() == nil {
		began := time.Now()
		if err := d.Keeper.Watch(ctx, func(c keeper.Container) { d.handleExit(ctx, c) }); ctx.Err() == nil {
			d.Log.Warn("lost connection to keeper", "error", err)
		}
		if time.Since(began) > time.Minute {
			backoff.Reset()
		}
		wait.Pause(ctx, backoff.Next())
	}
	return nil
}

// handleExit handles the end of a container, and repeats it while containerd does not answer:
// the ends of others could not be stored either.
func (d *Driver) handleExit(ctx context.Context, k keeper.Container) {
	backoff := wait.Backoff{}
	for {
		err := d.exited(ctx, k)
		if err == nil || ctx.Err() != nil {
			return
		}
		d.Log.Warn("cannot record end of container", "container", k.ID, "error", err)
		if !wait.Pause(ctx, backoff.Next()) {
			return
		}
	}
}

// exited handles the end of a container, and acknowledges it when it is stored.
func (d *Driver) exited(ctx context.Context, k keeper.Container) error {
	d.mu.Lock()
	s, c := d.firsts[k.ID], d.containers[k.ID]
	d.mu.Unlock()
	switch {
	case s != nil:
		if err := d.firstEnded(ctx, s); err != nil {
			return err
		}
	case c != nil:
		if err := d.end(ctx, c, d.handlerOf(c), d.exitOf(c, k)); err != nil {
			return err
		}
	}
	return d.acknowledge(ctx, k.ID)
}

// acknowledge makes the keeper forget a container that has ended.
func (d *Driver) acknowledge(ctx context.Context, id string) error {
	err := d.Keeper.Acknowledge(ctx, id)
	if errors.Is(err, keeper.ErrNotFound) || errors.Is(err, keeper.ErrUnavailable) {
		return nil // the next keeper sends it again
	}
	return err
}

// exitOf returns the end that the keeper has observed. Like containerd's, its reason is that of
// the OOM killer whichever process of the container that has killed.
func (d *Driver) exitOf(c *podContainer, k keeper.Container) store.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit != nil {
		return *c.exit
	}
	e := store.Exit{Code: k.ExitCode, StartedAt: k.StartedAt, FinishedAt: k.FinishedAt, Reason: reasonError}
	switch {
	case d.outOfMemory(c):
		e.Reason = reasonOOMKilled
	case !k.CodeKnown:
		e.Reason = reasonUnknown
	case k.ExitCode == 0:
		e.Reason = reasonCompleted
	}
	if !k.CodeKnown {
		e.Code = codeUnknown
	}
	c.exit = &e
	return e
}

// end records the end of a container, and removes what only a running one needs.
func (d *Driver) end(ctx context.Context, c *podContainer, h Handler, e store.Exit) error {
	e.Message = strings.ToValidUTF8(e.Message, "\uFFFD") // an OCI runtime program repeats what it was given
	if err := d.Store.Finish(ctx, c.id, e); err != nil {
		return err
	}
	if err := deleteContainer(ctx, h, c.id); err != nil {
		return err
	}
	if err := d.unmount(c.id); err != nil {
		return err
	}
	c.finish(e)
	c.unwatchOOM()
	s := d.findSandbox(c.sandboxID)
	if s == nil {
		return nil
	}
	d.emit(s, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return c.save(d, true)
}

// finish puts the end into the status.
func (c *podContainer) finish(e store.Exit) {
	c.change(func(s *runtimeapi.ContainerStatus) {
		s.State, s.ExitCode, s.Reason, s.Message = runtimeapi.ContainerState_CONTAINER_EXITED, e.Code, e.Reason, e.Message
		s.FinishedAt = e.FinishedAt
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	select {
	case <-c.ended:
	default:
		close(c.ended)
	}
}

// deleteContainer deletes a container with the OCI runtime program. It returns nil if the
// program does not have the container.
func deleteContainer(ctx context.Context, h Handler, id string) error {
	args := h.Program.Delete(id)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if text := string(out); err != nil && !strings.Contains(text, "does not exist") {
		const most = 1 << 10
		return fmt.Errorf("delete container with %q: %w: %s", args[0], errors.Join(err, context.Cause(ctx)), text[:min(len(text), most)])
	}
	return nil
}
