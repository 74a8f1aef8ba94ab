package streaming

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unreadBytes returns the number of received bytes of a connection that were not read,
// unsent the number of sent bytes that the peer has not acknowledged (tcp(7), SIOCINQ
// and SIOCOUTQ). Both return 0 if that is unknown.
func unreadBytes(conn net.Conn) int  { return queued(conn, unix.SIOCINQ) }
func unackedBytes(conn net.Conn) int { return queued(conn, unix.SIOCOUTQ) }

func queued(conn net.Conn, which uint) (n int) {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if bytes, err := unix.IoctlGetInt(int(fd), which); err == nil {
			n = bytes
		}
	})
	return n
}
