package native

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// maxQueued bounds the events that a subscriber has not handled. One that has more is
// disconnected, and relists.
const maxQueued = 256

// subscribers are the open streams of events.
type subscribers struct {
	mu  sync.Mutex
	all map[chan *runtimeapi.ContainerEventResponse]struct{}
}

// emit sends an event of a sandbox or of one of its containers.
func (d *Driver) emit(s *podSandbox, id string, kind runtimeapi.ContainerEventType) {
	d.events.mu.Lock()
	defer d.events.mu.Unlock()
	if len(d.events.all) == 0 {
		return
	}
	e := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: s.status()}
	for _, c := range d.inSandbox(s.id) {
		e.ContainersStatuses = append(e.ContainersStatuses, proto.CloneOf(c.snapshot()))
	}
	for queue := range d.events.all {
		select {
		case queue <- e:
		default:
			close(queue)
			delete(d.events.all, queue)
		}
	}
}

// ContainerEvents implements container.Events.
func (d *Driver) ContainerEvents(ctx context.Context, connected func(), handle func(*runtimeapi.ContainerEventResponse)) error {
	queue := make(chan *runtimeapi.ContainerEventResponse, maxQueued)
	d.events.mu.Lock()
	if d.events.all == nil {
		d.events.all = map[chan *runtimeapi.ContainerEventResponse]struct{}{}
	}
	d.events.all[queue] = struct{}{}
	d.events.mu.Unlock()
	defer func() {
		d.events.mu.Lock()
		defer d.events.mu.Unlock()
		delete(d.events.all, queue)
	}()
	connected()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-queue:
			if !ok {
				return fmt.Errorf("receive container events: %w: %d were not handled in time", container.ErrUnavailable, maxQueued)
			}
			handle(proto.CloneOf(e))
		}
	}
}
