package pleg

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// trust is how far the event stream is relied on.
type trust uint8

const (
	closed   trust = iota // no stream: the runtime is polled
	unproven              // open, and nothing has come over it yet
	proven                // it has delivered an event
)

// stream reads the runtime's events and begins again whenever they break off.
func (p *PLEG) stream(ctx context.Context) {
	wait, quiet := retryFirst, false
	for {
		begun := time.Now()
		err := p.cfg.Runtime.ContainerEvents(ctx, p.opened, p.handle)
		was := p.closed()
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, container.ErrUnsupported) {
			if !quiet {
				p.cfg.Log.Warn("container runtime has no events, its pods are listed each second", "error", err)
			}
			// It may be replaced by one that has.
			if quiet = true; !pause(ctx, jitter(relistPeriod)) {
				return
			}
			continue
		}
		if was == proven || time.Since(begun) > heartbeatPeriod {
			wait, quiet = retryFirst, false
		}
		if !quiet {
			p.cfg.Log.Warn("container runtime's events broke off", "error", err)
			quiet = true // until a stream has been of use
		}
		if !pause(ctx, jitter(wait)) {
			return
		}
		wait = longer(wait)
	}
}

// opened notes that events come from here on. What was before must be listed,
// and once more a moment later: no runtime says when exactly a subscription
// has taken effect.
func (p *PLEG) opened() {
	p.mu.Lock()
	p.trust = unproven
	p.mu.Unlock()
	p.cfg.Log.Info("container runtime sends events")
	fill(p.relistNow)
	fill(p.relistSoon)
	if p.cfg.Connected != nil {
		p.cfg.Connected()
	}
}

// closed notes that no events come any more, and says how far they were
// relied on.
func (p *PLEG) closed() trust {
	p.mu.Lock()
	was := p.trust
	p.trust = closed
	p.mu.Unlock()
	if was != closed {
		fill(p.relistNow)
	}
	return was
}

// handle queues the pod that an event is about.
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
		fill(p.relistNow)
		return
	}
	fill(p.news)
	if deleted && (sandbox == nil || sandbox.GetId() == e.GetContainerId()) {
		// containerd says so shortly before a sandbox leaves its lists.
		fill(p.relistSoon)
	}
}
