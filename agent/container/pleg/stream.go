package pleg

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/wait"
)

// trust is how far the event stream can be relied on.
type trust uint8

const (
	closed   trust = iota // no stream: the runtime is polled
	unproven              // open, and no event has arrived yet
	proven                // it has delivered an event
)

// stream subscribes to the runtime's events, and again whenever the stream
// breaks.
func (p *PLEG) stream(ctx context.Context) {
	retry, quiet := retryFirst, false
	for {
		begun := time.Now()
		err := p.cfg.Runtime.ContainerEvents(ctx, p.opened, p.handle)
		was := p.closed()
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, container.ErrUnsupported) {
			if !quiet {
				p.cfg.Log.Warn("container events unsupported, polling runtime", "period", pollPeriod, "error", err)
			}
			// It may be replaced by a runtime that has events.
			if quiet = true; !wait.Pause(ctx, wait.Around(relistPeriod, 10)) {
				return
			}
			continue
		}
		if was == proven || time.Since(begun) > heartbeatPeriod {
			retry, quiet = retryFirst, false
		}
		if !quiet {
			p.cfg.Log.Warn("container event stream broke", "error", err)
			quiet = true // until a stream has worked
		}
		if !wait.Pause(ctx, wait.Around(retry, 10)) {
			return
		}
		retry = longer(retry)
	}
}

// opened records that the event stream is open. A relist must find the changes
// before it, and another one a moment later, because no runtime reports when
// exactly a subscription takes effect.
func (p *PLEG) opened() {
	p.mu.Lock()
	p.trust = unproven
	p.mu.Unlock()
	p.cfg.Log.Info("container event stream opened")
	wait.Notify(p.relistNow)
	wait.Notify(p.relistSoon)
	if p.cfg.Connected != nil {
		p.cfg.Connected()
	}
}

// closed records that the event stream has ended, and returns its trust until
// then.
func (p *PLEG) closed() trust {
	p.mu.Lock()
	was := p.trust
	p.trust = closed
	p.mu.Unlock()
	if was != closed {
		wait.Notify(p.relistNow)
	}
	return was
}

// handle queues the pod that an event belongs to.
func (p *PLEG) handle(e *runtimeapi.ContainerEventResponse) {
	sandbox := e.GetPodSandboxStatus()
	uid := types.UID(sandbox.GetMetadata().GetUid())
	deleted := e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	p.mu.Lock()
	p.trust = proven
	p.heard = time.Now()
	if uid == "" {
		uid = p.owners[e.GetContainerId()]
	}
	switch {
	case uid == "":
	case deleted:
		delete(p.owners, e.GetContainerId())
	default:
		p.owners[e.GetContainerId()] = uid
	}
	if uid != "" {
		p.changed(uid)
	}
	p.mu.Unlock()
	if uid == "" {
		wait.Notify(p.relistNow)
		return
	}
	wait.Notify(p.news)
	if deleted && (sandbox == nil || sandbox.GetId() == e.GetContainerId()) {
		// containerd sends this event shortly before the sandbox leaves its
		// lists.
		wait.Notify(p.relistSoon)
	}
}
