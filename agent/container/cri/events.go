package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// ContainerEvents implements container.Events. It waits for a runtime that is unreachable.
//
// A stream delivers nothing before its first event: containerd does not even send headers
// (internal/cri/server/container_events.go). So ContainerEvents opens the stream, then
// calls Version on the same connection as a barrier. The response proves that the runtime
// is alive, has finished its start and received the subscription first. It does not prove
// that the subscription is in effect, because another goroutine of the server handles it.
// It does not prove either that the call is implemented: ErrUnsupported may follow
// connected. So the caller must relist again a moment later.
//
// containerd up to 2.4 detects that a subscriber has disconnected only when it sends an
// event. 1.7 has one queue for all subscribers, so each disconnected subscriber takes one
// event. Until a stream has delivered its first event, a caller must not rely on it alone.
//
// While handle blocks, containerd's own calls soon block as well, because it waits for slow
// subscribers (internal/eventq).
func (d *Driver) ContainerEvents(ctx context.Context, connected func(), handle func(*runtimeapi.ContainerEventResponse)) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream when the barrier fails
	stream, err := d.runtime.GetContainerEvents(inner, &runtimeapi.GetEventsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return streamError(ctx, wrap(ctx, err, "subscribe to container events"))
	}
	if _, err := d.Version(ctx); err != nil {
		return streamError(ctx, fmt.Errorf("subscribe to container events: %w", err))
	}
	connected()
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("receive container events: %w: runtime ended the stream", container.ErrUnavailable)
		}
		if err != nil {
			return streamError(ctx, wrap(ctx, err, "receive container events"))
		}
		handle(event)
	}
}

// streamError maps the error of a stream to ErrUnavailable, unless ctx has ended or the
// runtime does not implement the call.
func streamError(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if errors.Is(err, container.ErrUnsupported) || errors.Is(err, container.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", container.ErrUnavailable, err)
}
