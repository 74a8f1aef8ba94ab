package oci

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// consoleTimeout limits the wait for the terminal after the OCI runtime program has ended.
const consoleTimeout = 5 * time.Second

// Console is the socket to which the OCI runtime program sends the master of a terminal.
type Console struct {
	Path     string
	listener *net.UnixListener
}

// ListenConsole listens on a socket at a path of at most 107 bytes.
func ListenConsole(path string) (*Console, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for terminal: %w", err)
	}
	return &Console{path, l}, nil
}

// Close closes and removes the socket.
func (c *Console) Close() { _ = c.listener.Close() }

// Receive returns the descriptor of the terminal's master, which the caller closes. It waits
// for it for 5 s at most.
func (c *Console) Receive() (int, error) { return c.receive(time.Now().Add(consoleTimeout)) }

// receiveFile returns the terminal's master, or an error when the socket is closed.
func (c *Console) receiveFile() (*os.File, error) {
	fd, err := c.receive(time.Time{})
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // a pending read ends with Close
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}

func (c *Console) receive(deadline time.Time) (int, error) {
	if err := c.listener.SetDeadline(deadline); err != nil {
		return -1, err
	}
	conn, err := c.listener.AcceptUnix()
	if err != nil {
		return -1, fmt.Errorf("%w: it has sent no terminal: %w", ErrFailed, err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(deadline); err != nil {
		return -1, err
	}
	_, fds, err := ReadPacket(conn, make([]byte, 256))
	if err != nil {
		return -1, fmt.Errorf("receive terminal: %w", err)
	}
	if len(fds) != 1 {
		CloseAll(fds)
		return -1, fmt.Errorf("%w: it has sent %d descriptors for the terminal, want 1", ErrFailed, len(fds))
	}
	return fds[0], nil
}

// maxDescriptors bounds the descriptors in a packet.
const maxDescriptors = 4

// ErrTruncated means that a packet is larger than the buffer, or has too many descriptors.
var ErrTruncated = errors.New("packet is too long")

// ReadPacket reads one packet with its descriptors. It returns io.EOF when the peer has closed
// the connection and no packet is left.
func ReadPacket(conn *net.UnixConn, buffer []byte) (data []byte, fds []int, err error) {
	control := make([]byte, unix.CmsgSpace(maxDescriptors*4))
	n, controls, flags, _, err := conn.ReadMsgUnix(buffer, control)
	if errors.Is(err, io.EOF) {
		// The kernel checks the queue first and the end of the connection next
		// (unix_dgram_recvmsg in net/unix/af_unix.c). A packet that arrives between the two
		// is still in the queue.
		n, controls, flags, _, err = conn.ReadMsgUnix(buffer, control)
	}
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
		CloseAll(fds)
		return nil, nil, ErrTruncated
	}
	return buffer[:n], fds, nil
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
