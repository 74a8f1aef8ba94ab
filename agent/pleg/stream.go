package pleg

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// stream reads the runtime's events and begins again whenever they break off.
func (p *PLEG) stream(ctx context.Context) {
	wait := retryFirst
	for {
		connected := false
		err := p.cfg.Runtime.ContainerEvents(ctx, func() {
			connected = true
			p.note(nil)
			p.cfg.Log.Info("container runtime sends events")
			fill(p.relistNow)
		}, p.handle)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, container.ErrUnsupported):
			p.cfg.Log.Warn("container runtime has no events, its pods are listed each second")
			p.mu.Lock()
			p.polling = true
			p.mu.Unlock()
			fill(p.relistNow)
			return
		}
		if connected {
			wait = retryFirst
			p.cfg.Log.Warn("container runtime's events broke off", "error", err)
			fill(p.relistNow)
		}
		if !pause(ctx, jitter(wait)) {
			return
		}
		wait = longer(wait)
	}
}

// handle queues the pod that an event is about.
func (p *PLEG) handle(e *runtimeapi.ContainerEventResponse) {
	uid := types.UID(e.GetPodSandboxStatus().GetMetadata().GetUid())
	p.mu.Lock()
	p.heard = time.Now()
	if uid == "" {
		uid = p.owners[e.GetContainerId()]
	}
	switch {
	case uid == "":
	case e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
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
}
