package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Receive calls each for every message of the kernel on a socket of nl.Subscribe, until
// ctx ends; it returns nil then. lost is called when the socket's buffer has overflowed
// (ENOBUFS): the caller then reads again what it watches. Both are called by Receive
// alone. Receive closes the socket.
//
// The library's own subscriptions (LinkSubscribe and others) end at an overflow. Links,
// addresses and routes take three sockets, six goroutines and 442 kB of stack (amd64),
// in place of one socket, one goroutine and 131 kB here. The order of notifications of
// different kinds is lost.
func Receive(ctx context.Context, socket *nl.NetlinkSocket, each func(kind uint16, payload []byte), lost func()) error {
	defer socket.Close()
	defer context.AfterFunc(ctx, socket.Close)()
	for {
		messages, from, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			drain(socket)
			lost()
			continue
		case err != nil:
			return fmt.Errorf("receive netlink notification: %w", err)
		case from.Pid != nl.PidKernel:
			continue
		}
		for _, m := range messages {
			each(m.Header.Type, m.Data)
		}
	}
}

// drainTimeout and drainMax bound how long and how often drain reads.
const (
	drainTimeout = 10 * time.Millisecond
	drainMax     = 1 << 16
)

// drain empties the buffer of a socket that has overflowed. Until it is empty the kernel
// drops notifications without another ENOBUFS (NETLINK_S_CONGESTED in
// net/netlink/af_netlink.c).
func drain(socket *nl.NetlinkSocket) {
	limit := unix.NsecToTimeval(drainTimeout.Nanoseconds())
	_ = socket.SetReceiveTimeout(&limit) // always nil
	for range drainMax {
		if _, _, err := socket.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			break
		}
	}
	_ = socket.SetReceiveTimeout(&unix.Timeval{})
}

// WatchRemovedRoutes calls notify when a route of this protocol was removed, or may have
// been, in the network namespace of the calling thread, until ctx ends; it returns nil
// then.
func WatchRemovedRoutes(ctx context.Context, protocol uint8, notify func()) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return fmt.Errorf("subscribe to routes: %w", err)
	}
	return Receive(ctx, socket, func(kind uint16, payload []byte) {
		if kind == unix.RTM_DELROUTE && len(payload) >= unix.SizeofRtMsg && nl.DeserializeRtMsg(payload).Protocol == protocol {
			notify()
		}
	}, notify)
}

// Monitor reports changes of the links, addresses and default routes of a network
// namespace that may change the uplink or its addresses.
type Monitor struct {
	socket *nl.NetlinkSocket
	h      *Handle
	begin  []Link // the links when the subscription began
}

// Listen returns a Monitor of the network namespace of the calling thread. Changes
// from then on are reported by Run, so that callers read the state after Listen. The
// caller must call Run or Close.
func Listen() (*Monitor, error) {
	h, err := Open()
	if err != nil {
		return nil, err
	}
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("subscribe to links: %w", err)
	}
	m := &Monitor{socket: socket, h: h}
	if m.begin, err = h.Links(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Ignore selects changes that a Monitor does not report. A nil function selects nothing.
type Ignore struct {
	// Link returns true for links of which nothing is reported, such as those of pods.
	Link func(Link) bool
	// Ports returns true for bridges whose carrier and MTU are not reported. Both follow
	// those of the ports (net/bridge/br_if.c), so they change with the first and the last
	// pod on a bridge.
	Ports func(Link) bool
}

// Close closes a Monitor that was not run.
func (m *Monitor) Close() {
	m.socket.Close()
	m.h.Close()
}

// Run calls notify after each change until ctx ends. Then it closes the Monitor and
// returns nil. The caller reads the state again after a call. notify is called by Run,
// must not block, and may be called often in a short time.
//
// The loopback interface and what ignore selects are not reported. Nor are repetitions:
// an address whose lifetime is prolonged, for example. Only default routes of the main
// table and addresses of global scope count.
func (m *Monitor) Run(ctx context.Context, ignore Ignore, notify func()) error {
	defer m.Close()
	s := newSeen(ignore, m.begin)
	m.begin = nil
	return Receive(ctx, m.socket, func(kind uint16, payload []byte) {
		if s.message(kind, payload) {
			notify()
		}
	}, func() {
		// If they cannot be read, all links count as new.
		all, _ := m.h.Links()
		s = newSeen(ignore, all)
		notify()
	})
}
