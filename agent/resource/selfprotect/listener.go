package selfprotect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// dialLimit bounds the connection to a socket on this machine.
const dialLimit = 5 * time.Second

// errNobody is told of a listener that is no process of this PID namespace, or
// the init, which listens in another's place.
var errNobody = errors.New("who listens there cannot be told")

// Listener is the process that listens at a unix socket, by what the kernel
// has noted of it (SO_PEERCRED, unix(7)).
func Listener(ctx context.Context, socket string) (pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("find who listens at %s: %w", socket, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find who listens at %s: %w", socket, err)
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err == nil && cred.Pid <= 1 {
		err = errNobody
	}
	if err != nil {
		return 0, fmt.Errorf("find who listens at %s: %w", socket, err)
	}
	return int(cred.Pid), nil
}
