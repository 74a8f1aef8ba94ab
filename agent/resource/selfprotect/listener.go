package selfprotect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const dialTimeout = 5 * time.Second

// errUnknownListener means that the listener is not in this PID namespace, or that it is init,
// which listens for another process.
var errUnknownListener = errors.New("listening process is unknown or init")

// ListenerPID returns the PID of the process that listens on a unix socket, from
// SO_PEERCRED (unix(7)). It blocks for up to 5 s.
func ListenerPID(ctx context.Context, socket string) (pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("find listener of %s: %w", socket, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find listener of %s: %w", socket, err)
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err == nil && cred.Pid <= 1 {
		err = errUnknownListener
	}
	if err != nil {
		return 0, fmt.Errorf("find listener of %s: %w", socket, err)
	}
	return int(cred.Pid), nil
}
