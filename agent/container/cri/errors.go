package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tinylet/tinylet/agent/container"
)

// errorOfCode maps the status codes that callers distinguish. A status that the runtime
// itself returns is mapped like one of the gRPC client, except for a pull.
var errorOfCode = map[codes.Code]error{
	codes.NotFound:         container.ErrNotFound,
	codes.Unavailable:      container.ErrUnavailable,
	codes.DeadlineExceeded: container.ErrTimeout,
	codes.Unimplemented:    container.ErrUnsupported,
}

// wrap adds the operation to err, and maps it to the errors of package container. ctx is
// the caller's own, without the driver's timeout, so that wrap can distinguish its end from
// a runtime that does not respond.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	code := status.Code(err)
	kind := errorOfCode[code]
	if code == codes.Canceled && contextError(ctx, code) == nil {
		kind = container.ErrUnavailable // the driver was closed
	}
	return wrapAs(ctx, kind, err, fmt.Sprintf(format, args...))
}

// wrapPull is wrap for a pull, whose status may be one of the registry: containerd answers
// Canceled if the registry sends nothing, DeadlineExceeded if it is unreachable, and
// NotFound if it lacks the image.
func (d *Driver) wrapPull(ctx context.Context, err error, image string) error {
	var kind error
	if code := status.Code(err); code == codes.Unavailable || code == codes.Canceled && d.closed.Load() {
		kind = container.ErrUnavailable
	}
	return wrapAs(ctx, kind, err, fmt.Sprintf("pull image %q", image))
}

// wrapAs adds the operation, kind unless it is nil, and the cause if ctx has ended.
func wrapAs(ctx context.Context, kind, err error, what string) error {
	st := status.Convert(err)
	if cause := contextError(ctx, st.Code()); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			kind = container.ErrTimeout
		}
		if kind == nil {
			return fmt.Errorf("%s: %w", what, cause)
		}
		return fmt.Errorf("%s: %w: %w: %s", what, kind, cause, st.Message())
	}
	if kind == nil {
		// The runtime's own message, without gRPC's prefix, because pod status and
		// events contain it.
		return fmt.Errorf("%s: %s", what, st.Message())
	}
	return fmt.Errorf("%s: %w: %s", what, kind, st.Message())
}

// deadlineSlack is the time before the deadline by the caller's clock within which the
// server may already have ended the call.
const deadlineSlack = 50 * time.Millisecond

// contextError returns why ctx ended, or nil. The server has the same deadline, and its
// cancellation may arrive just before ctx ends.
func contextError(ctx context.Context, code codes.Code) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if code != codes.Canceled && code != codes.DeadlineExceeded {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < deadlineSlack {
		return context.DeadlineExceeded
	}
	return nil
}

// ignoreNotFound returns err, or nil if the runtime does not have the object.
func ignoreNotFound(err error) error {
	if errors.Is(err, container.ErrNotFound) {
		return nil
	}
	return err
}
