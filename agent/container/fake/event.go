package fake

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// subscription is one event stream.
type subscription struct {
	queue []*runtimeapi.ContainerEventResponse // guarded by the runtime's lock
	wake  chan struct{}
}

// emit queues an event for every subscriber; the caller holds the lock. Without
// a subscriber the event is lost.
func (r *Runtime) emit(id, sandboxID string, kind runtimeapi.ContainerEventType) {
	if len(r.subscribers) == 0 {
		return
	}
	if r.dropEvents > 0 {
		r.dropEvents--
		return
	}
	e := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: kind,
		CreatedAt:          time.Now().UnixNano(),
	}
	if s := r.sandboxes[sandboxID]; s != nil && !r.bareEvents {
		e.PodSandboxStatus = s.status()
		for _, p := range r.inSandbox(sandboxID) {
			e.ContainersStatuses = append(e.ContainersStatuses, proto.CloneOf(p.status))
		}
	}
	for s := range r.subscribers {
		s.queue = append(s.queue, e)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// LoseEvents drops the next n events, as a runtime may do.
func (r *Runtime) LoseEvents(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropEvents = n
}

// BareEvents makes events lack the status of the pod and of its containers, as
// those of containerd do when it cannot read it.
func (r *Runtime) BareEvents(bare bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bareEvents = bare
}

// ContainerEvents implements container.Events.
func (r *Runtime) ContainerEvents(ctx context.Context, connected func(), handle func(*runtimeapi.ContainerEventResponse)) error {
	r.recordCall("ContainerEvents", "")
	if err := ctx.Err(); err != nil {
		return err
	}
	f := r.matchFault("ContainerEvents", "")
	if _, err := r.waitWhileHung(ctx); err != nil {
		return streamEnd(ctx, err)
	}
	s := &subscription{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return streamEnd(ctx, container.ErrUnavailable)
	}
	broken := r.broken
	r.subscribers[s] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, s)
	}()
	if f != nil {
		if err := f.apply(ctx, broken); err != nil {
			return streamEnd(ctx, err)
		}
	}
	connected()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return streamEnd(ctx, container.ErrUnavailable)
		case <-s.wake:
		}
		for {
			if _, err := r.waitWhileHung(ctx); err != nil {
				return streamEnd(ctx, err)
			}
			e := r.pop(s)
			if e == nil {
				break
			}
			handle(proto.CloneOf(e))
		}
	}
}

func (r *Runtime) pop(s *subscription) *runtimeapi.ContainerEventResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	e := s.queue[0]
	s.queue = s.queue[1:]
	return e
}

func streamEnd(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	return fmt.Errorf("receive container events: %w", err)
}
