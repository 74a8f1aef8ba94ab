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

// errorOfCode are the status codes that callers distinguish.
var errorOfCode = map[codes.Code]error{
	codes.NotFound:         container.ErrNotFound,
	codes.Unavailable:      container.ErrUnavailable,
	codes.DeadlineExceeded: container.ErrTimeout,
	codes.Unimplemented:    container.ErrUnsupported,
}

// wrap adds what was attempted to err, and maps it to the errors of package
// container. ctx is the caller's own, without the driver's timeout: wrap
// distinguishes its end from a runtime that does not answer.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	st := status.Convert(err)
	kind := errorOfCode[st.Code()]
	cause := contextError(ctx, st.Code())
	if st.Code() == codes.Canceled && cause == nil {
		kind = container.ErrUnavailable // the driver was closed
	}
	if cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			kind = container.ErrTimeout
		}
		if kind == nil {
			return fmt.Errorf("%s: %w", what, cause)
		}
		return fmt.Errorf("%s: %w: %w: %s", what, kind, cause, st.Message())
	}
	if kind == nil {
		// The runtime's own message, without gRPC's prefix, because it ends up
		// in pod status and events.
		return fmt.Errorf("%s: %s", what, st.Message())
	}
	return fmt.Errorf("%s: %w: %s", what, kind, st.Message())
}

// deadlineSlack is how much before the caller's clock the server's may end a
// call at their common deadline.
const deadlineSlack = 50 * time.Millisecond

// contextError returns why ctx ended, or nil. The server has the deadline, too, and
// its cancellation may arrive just before ctx ends.
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

// ignoreNotFound returns err, or nil if the object does not exist any more.
func ignoreNotFound(err error) error {
	if errors.Is(err, container.ErrNotFound) {
		return nil
	}
	return err
}
