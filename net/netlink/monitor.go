package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Monitor hears what the kernel tells all who have joined its groups. It needs
// no thread while nothing is told. It is for one goroutine but for Close.
type Monitor struct {
	file *os.File
	buf  []byte
}

// Listen joins groups (unix.RTNLGRP_LINK, say) of a family in the network
// namespace of the calling thread. What happens from then on is told.
func Listen(family int, groups ...uint) (*Monitor, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, fmt.Errorf("listen by netlink: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g))
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen by netlink: %w", err)
	}
	return &Monitor{file: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, receiveLen)}, nil
}

// Close ends Run.
func (m *Monitor) Close() error { return m.file.Close() }

// Run calls each for every message until the context ends, when it closes the
// Monitor and returns nil. The payload is valid during the call. Where the
// kernel had more to tell than the socket holds, lost is called: what is
// watched has to be read anew. Each and lost are called by Run alone.
func (m *Monitor) Run(ctx context.Context, each func(kind uint16, payload []byte), lost func()) error {
	stop := context.AfterFunc(ctx, func() { m.file.Close() })
	defer stop()
	defer m.file.Close()
	raw, err := m.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("hear netlink: %w", err)
	}
	for {
		n, err := m.receive(raw)
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS):
			lost()
			continue
		case err != nil:
			return fmt.Errorf("hear netlink: %w", err)
		}
		for data := m.buf[:n]; len(data) > 0; {
			got, rest, ok := next(data)
			if !ok {
				lost()
				break
			}
			each(got.kind, got.payload)
			data = rest
		}
	}
}

// receive waits for one datagram of the kernel's.
func (m *Monitor) receive(raw interface {
	Read(func(fd uintptr) bool) error
}) (n int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		for {
			var from unix.Sockaddr
			n, _, _, from, err = unix.Recvmsg(int(fd), m.buf, nil, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if a, ok := from.(*unix.SockaddrNetlink); err == nil && ok && a.Pid != 0 {
				continue
			}
			return !errors.Is(err, unix.EAGAIN)
		}
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}
