package remotecommand

import (
	"cmp"
	"context"
	"errors"

	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// maxStatus limits the bytes of the command's status.
const maxStatus = 64 << 10

var errLongStatus = errors.New("command status from server is too long")

// statusStream is the stream of the command's status.
type statusStream struct {
	httpstream.Stream
	upgrader *upgrader
}

// Read implements io.Reader.
func (s *statusStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	if s.upgrader.statusBytes.Add(int64(n)) > maxStatus {
		s.upgrader.fail(errLongStatus)
		return 0, errLongStatus
	}
	return n, err
}

// outcome returns the result of a session whose client has returned err.
func (u *upgrader) outcome(ctx context.Context, err error) (code int, _ error) {
	if local := (*localError)(nil); errors.As(context.Cause(ctx), &local) {
		return 0, local
	}
	if exit := (utilexec.CodeExitError{}); errors.As(err, &exit) && exit.Code != 0 {
		return exit.Code, nil
	}
	received := u.statusBytes.Load() > 0
	switch {
	case err == nil && received:
		return 0, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case u.refused != nil:
		return 0, u.refused
	case err == nil:
		return 0, ErrNoStatus
	case received:
		return 0, &CommandError{Text: cmp.Or(err.Error(), "command failed without a message")}
	}
	return 0, err
}
