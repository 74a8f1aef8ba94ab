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

// streamState is how far the event stream can be relied on.
type streamState uint8

const (
	streamClosed   streamState = iota // no stream: the runtime is polled
	streamUnproven                    // open, and no event has arrived yet
	streamProven                      // it has delivered an event
)

// watchEvents subscribes to the runtime's events, and again when the stream breaks. For a
// runtime without events it tries again every 10 minutes.
func (p *PLEG) watchEvents(ctx context.Context) {
	retry, quiet := retryFirst, false
	for {
		begun := time.Now()
		err := p.cfg.Runtime.ContainerEvents(ctx, p.onStreamOpened, p.handle)
		was := p.onStreamClosed()
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, container.ErrUnsupported) {
			if !quiet {
				p.cfg.Log.Warn("container events unsupported, polling runtime", "period", pollPeriod, "error", err)
			}
			// A runtime that has events may replace it.
			if quiet = true; !wait.Pause(ctx, wait.Around(relistPeriod, 10)) {
				return
			}
			continue
		}
		if was == streamProven || time.Since(begun) > heartbeatPeriod {
			retry, quiet = retryFirst, false
		}
		if !quiet {
			p.cfg.Log.Warn("container event stream broke", "error", err)
			quiet = true // until a stream has worked
		}
		if !wait.Pause(ctx, wait.Around(retry, 10)) {
			return
		}
		retry = nextBackoff(retry)
	}
}

// onStreamOpened records that the event stream is open. A relist finds the earlier
// changes. Another relist follows after repeatDelay, because no runtime reports when
// exactly a subscription takes effect.
func (p *PLEG) onStreamOpened() {
	p.mu.Lock()
	p.streamState = streamUnproven
	p.mu.Unlock()
	p.cfg.Log.Info("container event stream opened")
	wait.Notify(p.relistNow)
	wait.Notify(p.relistSoon)
	if p.cfg.Connected != nil {
		p.cfg.Connected()
	}
}

// onStreamClosed records that the event stream has ended, and returns its state before.
func (p *PLEG) onStreamClosed() streamState {
	p.mu.Lock()
	was := p.streamState
	p.streamState = streamClosed
	p.mu.Unlock()
	if was != streamClosed {
		wait.Notify(p.relistNow)
	}
	return was
}

// handle queues the pod that an event belongs to. If the pod is unknown, it requests a
// relist.
func (p *PLEG) handle(e *runtimeapi.ContainerEventResponse) {
	sandbox := e.GetPodSandboxStatus()
	uid := types.UID(sandbox.GetMetadata().GetUid())
	deleted := e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	p.mu.Lock()
	p.streamState = streamProven
	p.lastSeen = time.Now()
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
	wait.Notify(p.wake)
	if deleted && (sandbox == nil || sandbox.GetId() == e.GetContainerId()) {
		// containerd sends this event shortly before the sandbox leaves its
		// lists.
		wait.Notify(p.relistSoon)
	}
}
