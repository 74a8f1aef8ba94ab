package link

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Monitor hears of changes of the links, addresses and default routes of a
// network namespace that may make another link the uplink, or change its
// address. It sleeps while the kernel has nothing to tell.
type Monitor struct {
	wire  *netlink.Monitor
	h     *Handle
	begin []Link // as they were when it began to listen
}

// Listen makes a Monitor of the calling thread's network namespace. What
// happens from then on is told when it runs; so what is watched is read after
// this call. It has to be run, or closed.
func Listen() (*Monitor, error) {
	h, err := Open()
	if err != nil {
		return nil, err
	}
	wire, err := netlink.Listen(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	m := &Monitor{wire: wire, h: h}
	if m.begin, err = h.Links(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// ListenIn makes a Monitor of the network namespace that is open as ns.
func ListenIn(ns *os.File) (m *Monitor, err error) {
	err = netlink.In(ns, func() error {
		m, err = Listen()
		return err
	})
	return m, err
}

// Close closes a Monitor that is not run.
func (m *Monitor) Close() {
	m.wire.Close()
	m.h.Close()
}

// Run calls told whenever something has changed, and what is watched should be
// read anew, until the context ends; then it closes the Monitor and returns
// nil. Told is called by Run, must not block, and may be called often at once.
//
// Nothing is told of the loopback, nor of the links for which ignore says so,
// such as those of pods; it may be nil. Nor is it of what comes again as it
// was: addresses whose life a router or a lease prolongs, counters of
// wireless links. Of routes only default ones of the main table count, of
// addresses only those of global scope.
func (m *Monitor) Run(ctx context.Context, ignore func(Link) bool, told func()) error {
	defer m.Close()
	s := newSeen(ignore, m.begin)
	m.begin = nil
	return m.wire.Run(ctx, func(kind uint16, p []byte) {
		if s.message(kind, p) {
			told()
		}
	}, func() {
		// If it cannot be read, what comes is taken for new.
		all, _ := m.h.links(0)
		s = newSeen(ignore, all)
		told()
	})
}
