package keeper

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// consoleTimeout limits the wait for the terminal after the OCI runtime program has ended.
const consoleTimeout = 5 * time.Second

// console is the socket to which the OCI runtime program sends the master of a terminal.
type console struct {
	path     string
	listener *net.UnixListener
}

func listenConsole(path string) (*console, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for terminal: %w", err)
	}
	return &console{path, l}, nil
}

func (c *console) close() { _ = c.listener.Close() }

// receive returns the descriptor of the terminal's master.
func (c *console) receive() (int, error) {
	deadline := time.Now().Add(consoleTimeout)
	if err := c.listener.SetDeadline(deadline); err != nil {
		return -1, err
	}
	conn, err := c.listener.AcceptUnix()
	if err != nil {
		return -1, fmt.Errorf("%w: it has sent no terminal: %w", ErrRuntime, err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(deadline); err != nil {
		return -1, err
	}
	_, fds, err := readPacket(conn, make([]byte, 256))
	if err != nil {
		return -1, fmt.Errorf("receive terminal: %w", err)
	}
	if len(fds) != 1 {
		closeAll(fds)
		return -1, fmt.Errorf("%w: it has sent %d descriptors for the terminal, want 1", ErrRuntime, len(fds))
	}
	return fds[0], nil
}

// readTerminal begins to read the terminal that the OCI runtime program has made.
func (k *Keeper) readTerminal(c *container, from *console) error {
	master, err := from.receive()
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(master, true); err != nil {
		_ = unix.Close(master)
		return fmt.Errorf("terminal: %w", err)
	}
	return c.readMaster(k.outputs, &stream{c: c, fd: master, entries: entries{stream: "stdout"}})
}

// readMaster reads a terminal as standard output. The keeper's other descriptor of it is for
// clients.
func (c *container) readMaster(o *outputs, s *stream) error {
	master, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(s.fd)
		return fmt.Errorf("terminal: %w", err)
	}
	c.mu.Lock()
	c.master = master
	c.mu.Unlock()
	return c.resume(o, s)
}

// maxDescriptors bounds the descriptors in a packet.
const maxDescriptors = 4

var errTruncated = errors.New("packet is too long")

// readPacket reads one packet with its descriptors.
func readPacket(conn *net.UnixConn, buffer []byte) (data []byte, fds []int, err error) {
	control := make([]byte, unix.CmsgSpace(maxDescriptors*4))
	n, controls, flags, _, err := conn.ReadMsgUnix(buffer, control)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil {
		return nil, nil, fmt.Errorf("parse control message: %w", err)
	}
	for i := range messages {
		received, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // of another kind
		}
		fds = append(fds, received...)
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(fds)
		return nil, nil, errTruncated
	}
	return buffer[:n], fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
