package link

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns"
)

var (
	// ErrNotFound means that there is no such link.
	ErrNotFound = errors.New("no such link")
	// ErrChanging means that a list changed during each attempt to read it.
	ErrChanging = errors.New("the list keeps changing")
)

// answerTimeout bounds the wait for an answer. The kernel answers before the system
// call of the request returns, unless it is faulty.
const answerTimeout = 10 * time.Second

// dumpAttempts is how often a dump is read that the kernel reports as interrupted
// (NLM_F_DUMP_INTR), because what it lists changed meanwhile.
const dumpAttempts = 8

// Handle configures one network namespace. Its methods block on the kernel alone,
// for answerTimeout at most for each request, and are for one goroutine at a time.
type Handle struct {
	rt  *netlink.Handle
	own *nl.NetlinkSocket // for requests that the library cannot build
}

// Open opens a Handle for the network namespace of the calling thread.
func Open() (*Handle, error) {
	rt, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	own, err := nl.GetNetlinkSocketAt(-1, -1, unix.NETLINK_ROUTE)
	if err != nil {
		rt.Close()
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	h := &Handle{rt, own}
	if err := h.configure(); err != nil {
		h.Close()
		return nil, fmt.Errorf("configure rtnetlink socket: %w", err)
	}
	return h, nil
}

// configure sets the deadlines. It also requests strict checking, with which the
// kernel filters dumps, and explanations of errors; kernels without them work too.
func (h *Handle) configure() error {
	_ = h.rt.SetStrictCheck(true)
	_ = h.own.SetExtAck(true)
	limit := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	return errors.Join(h.rt.SetSocketTimeout(answerTimeout), h.own.SetSendTimeout(&limit), h.own.SetReceiveTimeout(&limit))
}

// OpenIn opens a Handle for the network namespace open as ns, which the Handle does
// not need afterwards. It does not use netlink.NewHandleAt, which ignores it if the
// calling thread cannot return to its own namespace.
func OpenIn(ns *os.File) (h *Handle, err error) {
	err = netns.Do(ns, func() error {
		h, err = Open()
		return err
	})
	return h, err
}

// Close closes the Handle. The error is always nil.
func (h *Handle) Close() error {
	h.rt.Close()
	h.own.Close()
	return nil
}

// request returns a request that is acknowledged, for execute.
func (h *Handle) request(kind, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Seq: r.Seq, Socket: h.own}}
	return r
}

func execute(r *nl.NetlinkRequest) error {
	_, err := r.Execute(unix.NETLINK_ROUTE, 0)
	return translate(err)
}

// read calls a function of the library that reads, and repeats it for as long as the
// kernel reports that the result is not consistent, dumpAttempts times at most.
func read[T any](get func() (T, error)) (T, error) {
	for range dumpAttempts {
		got, err := get()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return got, translate(err)
		}
	}
	var none T
	return none, ErrChanging
}

// translate returns the error of this package for one of the library. Errors of the
// kernel stay as they are: syscall.Errno.
func translate(err error) error {
	switch {
	case errors.Is(err, unix.ENODEV), errors.As(err, new(netlink.LinkNotFoundError)):
		return ErrNotFound
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("the kernel has not answered within %v: %w", answerTimeout, os.ErrDeadlineExceeded)
	}
	return err
}

// withIndex returns a link of the library for functions that need only the index.
func withIndex(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}
