package netlink

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns"
)

// answerLimit bounds the wait for an answer. The kernel answers before the
// request's system call returns; only one that is broken does not.
const answerLimit = 10 * time.Second

// dumpTries is how often a dump begins anew because what it lists changed
// meanwhile (NLM_F_DUMP_INTR).
const dumpTries = 8

// receiveLen is large enough for any message of a dump: the kernel makes them
// no larger than 32 KiB (netlink_dump in net/netlink/af_netlink.c).
const receiveLen = 32 << 10

// Conn is a netlink socket. Its methods block on the kernel alone, for
// seconds at most, and are for one goroutine at a time.
type Conn struct {
	fd   int
	port uint32
	seq  uint32
	buf  []byte
}

// Dial opens a socket of a family (unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
// in the network namespace of the calling thread.
func Dial(family int) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	c := &Conn{fd: fd}
	if err := c.set(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return c, nil
}

func (c *Conn) set() error {
	// Explanations of errors without the request. Kernels without them work too.
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	limit := unix.NsecToTimeval(answerLimit.Nanoseconds())
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	own, err := unix.Getsockname(c.fd)
	if err != nil {
		return err
	}
	if a, ok := own.(*unix.SockaddrNetlink); ok {
		c.port = a.Pid
	}
	return nil
}

// DialIn opens a socket as Dial does, in the network namespace that is open as
// ns. The socket stays there; the calling thread does not.
func DialIn(family int, ns *os.File) (*Conn, error) {
	var c *Conn
	err := In(ns, func() (err error) {
		c, err = Dial(family)
		return err
	})
	return c, err
}

// In is netns.Do, for callers that this package still has.
func In(ns *os.File, do func() error) error { return netns.Do(ns, do) }

// Close closes the socket.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Do sends all messages at once and waits for what the kernel says of those
// that ask for an acknowledgement (NLM_F_ACK). The error is the first that the
// kernel tells, an *Error with the message's place, or one of the socket.
// Unless the family has batches, messages before and behind one that fails
// are carried out. Without messages nothing is sent.
func (c *Conn) Do(b *Builder) error {
	if b.count == 0 {
		return nil
	}
	first, waiting := c.number(b)
	if err := c.send(b); err != nil {
		return err
	}
	var failed *Error
	for waiting > 0 {
		data, err := c.receive(0)
		if err != nil {
			return err
		}
		for len(data) > 0 {
			m, rest, ok := next(data)
			if !ok {
				return errShort
			}
			data = rest
			index := m.seq - first
			if m.kind != unix.NLMSG_ERROR || index >= uint32(b.count) {
				continue // late, or of somebody else
			}
			said, err := verdict(m)
			if err != nil {
				return err
			}
			if said != nil && failed == nil {
				said.Index = int(index)
				failed = said
			}
			waiting--
		}
		// What failed may be all that is told: the rest of a batch has no
		// acknowledgement then. The kernel has said everything by now.
		if failed != nil {
			c.drain()
			return failed
		}
	}
	if failed != nil {
		return failed
	}
	return nil
}

// number gives each message its number, and counts those that want an answer.
func (c *Conn) number(b *Builder) (first uint32, waiting int) {
	first = c.seq + 1
	for data := b.buf; len(data) >= headerLen; {
		c.seq++
		order.PutUint32(data[8:], c.seq)
		order.PutUint32(data[12:], c.port)
		if order.Uint16(data[6:])&unix.NLM_F_ACK != 0 {
			waiting++
		}
		data = data[order.Uint32(data):]
	}
	return first, waiting
}

func (c *Conn) send(b *Builder) error {
	for {
		err := unix.Sendto(c.fd, b.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EMSGSIZE):
			// All has to fit into the socket's buffer.
			if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*len(b.buf)+4096) != nil {
				return fmt.Errorf("send %d bytes by netlink: %w", len(b.buf), err)
			}
			if err := unix.Sendto(c.fd, b.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				return fmt.Errorf("send %d bytes by netlink: %w", len(b.buf), err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("send by netlink: %w", err)
		default:
			return nil
		}
	}
}

// receive takes one datagram, which may hold several messages. It is valid
// until the next call.
func (c *Conn) receive(flags int) ([]byte, error) {
	if c.buf == nil {
		c.buf = make([]byte, receiveLen)
	}
	for {
		n, _, got, from, err := unix.Recvmsg(c.fd, c.buf, nil, flags)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN) && flags&unix.MSG_DONTWAIT == 0:
			return nil, fmt.Errorf("receive by netlink: the kernel has not answered within %v: %w", answerLimit, os.ErrDeadlineExceeded)
		case err != nil:
			return nil, fmt.Errorf("receive by netlink: %w", err)
		case got&unix.MSG_TRUNC != 0:
			return nil, fmt.Errorf("receive by netlink: a message is larger than %d bytes", len(c.buf))
		}
		if a, ok := from.(*unix.SockaddrNetlink); ok && a.Pid != 0 {
			continue // another process: the kernel has port 0
		}
		return c.buf[:n], nil
	}
}

// drain takes what is still told of a request that failed.
func (c *Conn) drain() {
	for {
		if _, err := c.receive(unix.MSG_DONTWAIT); err != nil {
			return
		}
	}
}

// ErrChanging says that what a dump lists changed each time that it was tried.
var ErrChanging = errors.New("what is listed keeps changing")

// Dump sends the one message that asks for a list (with NLM_F_DUMP) or for one
// object, and calls each for every message of the answer, with what stands
// behind its header; the payload is valid during the call. When what is
// listed changes meanwhile, it begins anew: begin is called before each try
// and may be nil. An error of each ends it.
func (c *Conn) Dump(b *Builder, begin func(), each func(kind uint16, payload []byte) error) error {
	for range dumpTries {
		if begin != nil {
			begin()
		}
		interrupted, err := c.dump(b, each)
		if err != nil || !interrupted {
			return err
		}
	}
	return ErrChanging
}

func (c *Conn) dump(b *Builder, each func(kind uint16, payload []byte) error) (interrupted bool, err error) {
	first, _ := c.number(b)
	if err := c.send(b); err != nil {
		return false, err
	}
	var failed error
	for {
		data, err := c.receive(0)
		if err != nil {
			return false, err
		}
		for len(data) > 0 {
			m, rest, ok := next(data)
			if !ok {
				return false, errShort
			}
			data = rest
			if m.seq != first {
				continue
			}
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			switch m.kind {
			case unix.NLMSG_DONE:
				// A dump that fails midway ends with its error.
				if code := int32(Number32(m.payload)); code < 0 {
					return false, &Error{Errno: unix.Errno(-code)}
				}
				return interrupted, failed
			case unix.NLMSG_ERROR:
				said, err := verdict(m)
				if err != nil {
					return false, err
				}
				if said != nil {
					return false, said
				}
				return interrupted, failed
			}
			if failed == nil {
				failed = each(m.kind, m.payload)
			}
			if m.flags&unix.NLM_F_MULTI == 0 {
				return interrupted, failed
			}
		}
	}
}
