package link

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// ErrNotFound says that there is no such link.
var ErrNotFound = errors.New("no such link")

// order is the machine's, in which rtnetlink has all numbers.
var order = binary.NativeEndian

// Handle speaks to the kernel of one network namespace. Its methods block on
// the kernel alone, and are for one goroutine at a time.
type Handle struct {
	conn *netlink.Conn
	b    netlink.Builder

	noIPv6 bool // the kernel has said so
}

// Open opens a Handle of the calling thread's network namespace.
func Open() (*Handle, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Handle{conn: c}, nil
}

// OpenIn opens a Handle of the network namespace that is open as ns, which the
// Handle does not need afterwards.
func OpenIn(ns *os.File) (*Handle, error) {
	c, err := netlink.DialIn(unix.NETLINK_ROUTE, ns)
	if err != nil {
		return nil, err
	}
	return &Handle{conn: c}, nil
}

// Close closes the Handle.
func (h *Handle) Close() error { return h.conn.Close() }

// do sends what was built; a link that is missing is ErrNotFound. Only the last
// message is acknowledged, so that one answer says that all went well: what the
// kernel does not take it tells unasked.
func (h *Handle) do() error {
	if h.b.Len() == 0 {
		return nil
	}
	h.b.Ack()
	return missing(h.conn.Do(&h.b))
}

// list asks for what was built, and calls each for every message of a kind.
func (h *Handle) list(kind uint16, begin func(), each func(payload []byte)) error {
	return missing(h.conn.Dump(&h.b, begin, func(k uint16, payload []byte) error {
		if k == kind {
			each(payload)
		}
		return nil
	}))
}

func missing(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return ErrNotFound
	}
	return err
}

// at is the place of the message that failed, -1 if none did.
func at(err error) int {
	var said *netlink.Error
	if errors.As(err, &said) {
		return said.Index
	}
	return -1
}
