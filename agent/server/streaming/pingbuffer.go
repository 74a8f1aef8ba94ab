package streaming

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// unreadBytes returns the number of received bytes of a connection that were not read,
// unackedBytes the number of written bytes that the peer has not acknowledged (tcp(7),
// SIOCINQ and SIOCOUTQ). Both return 0 if that is unknown.
func unreadBytes(conn net.Conn) int  { return queued(conn, unix.SIOCINQ) }
func unackedBytes(conn net.Conn) int { return queued(conn, unix.SIOCOUTQ) }

func queued(conn net.Conn, which uint) (n int) {
	socket, ok := transport(conn).(syscall.Conn)
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

// maxHeld limits the buffered pings in bytes; further pings are sent at once.
const maxHeld = 4 << 10

// pingBuffer buffers the client's pings while there is unread output of the runtime. A
// runtime closes its connection at the end of a session while its output is still in
// flight, megabytes of it if the client is slow. If a byte arrives then, the kernel sends
// a reset (RFC 9293, section 3.6.1) and drops the output in flight. The client cannot
// distinguish that from the end of the output: kubectl cp lost the end of a file when a
// ping of the API server, which sends one every five seconds, arrived at that moment.
type pingBuffer struct {
	runtime net.Conn
	held    atomic.Bool // pings is not empty

	mu    sync.Mutex // held while writing to runtime
	pings []byte
}

// write sends the buffered pings and b to the runtime, or buffers b.
func (h *pingBuffer) write(b []byte, ping bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ping && unreadBytes(h.runtime) > 0 && len(h.pings)+len(b) <= maxHeld {
		h.pings = append(h.pings, b...)
		h.held.Store(true)
		if unreadBytes(h.runtime) > 0 {
			return nil // the reader of the remaining output flushes the pings
		}
		b = nil
	}
	if err := h.release(); err != nil || len(b) == 0 {
		return err
	}
	_, err := h.runtime.Write(b)
	return err
}

// ready reports whether buffered pings can be sent now.
func (h *pingBuffer) ready() bool { return h.held.Load() && unreadBytes(h.runtime) == 0 }

func (h *pingBuffer) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.release() // the next write returns the same error
}

// discard discards the buffered pings: a client that has closed its write side may still
// read all output, which is more important than replies to its pings.
func (h *pingBuffer) discard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pings = nil
	h.held.Store(false)
}

// release sends the buffered pings. The lock must be held.
func (h *pingBuffer) release() error {
	pings := h.pings
	h.pings = nil
	h.held.Store(false)
	if len(pings) == 0 {
		return nil
	}
	_, err := h.runtime.Write(pings)
	return err
}
