package tpmkey

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Device is the kernel's resource manager of a TPM 2.0, through which several
// programs can use it.
const Device = "/dev/tpmrm0"

const (
	// tpmTimeout is the timeout of one use of a TPM, all commands together. Some TPMs
	// need two seconds for an elliptic-curve key. The agent's start blocks on it.
	tpmTimeout = 20 * time.Second
	// maxResponse is larger than any response of a TPM.
	maxResponse = 4096
	// responseHeader is the size of tag, length and code.
	responseHeader = 10
)

// errTimeout means that the TPM did not respond before the timeout.
var errTimeout = errors.New("the TPM does not respond: power off the board for some seconds; if that does not help, the TPM is broken")

// device is a connection to a TPM. It implements go-tpm's transport.TPM.
type device struct {
	fd       int
	deadline time.Time
	timedOut bool
}

// openDevice opens a TPM's device, or the socket of an emulator. All commands
// together must complete within timeout.
func openDevice(path string, timeout time.Duration) (*device, error) {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	fd, op := -1, "open"
	var err error
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		// Without O_NONBLOCK, write blocks until the TPM has responded.
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	case unix.S_IFSOCK:
		op = "connect"
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err == nil {
			if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
				_ = unix.Close(fd)
			}
		}
	default:
		err = errors.New("not a TPM device")
	}
	if err != nil {
		return nil, &os.PathError{Op: op, Path: path, Err: err}
	}
	return &device{fd: fd, deadline: time.Now().Add(timeout)}, nil
}

// Send implements transport.TPM: it sends a command and returns the response.
// After a timeout it always fails.
func (d *device) Send(command []byte) ([]byte, error) {
	if d.timedOut {
		return nil, errTimeout // a response would belong to an earlier command
	}
	// A command is smaller than a socket's buffer, and a device accepts it whole.
	if n, err := unix.Write(d.fd, command); err != nil {
		return nil, os.NewSyscallError("write", err)
	} else if n != len(command) {
		return nil, io.ErrShortWrite
	}
	response, size := make([]byte, maxResponse), responseHeader
	for have := 0; ; {
		if err := d.wait(); err != nil {
			return nil, err
		}
		n, err := unix.Read(d.fd, response[have:])
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, os.NewSyscallError("read", err)
		case n == 0:
			return nil, fmt.Errorf("read TPM response: %w", io.ErrUnexpectedEOF)
		}
		have += n
		if have >= responseHeader {
			size = int(binary.BigEndian.Uint32(response[2:]))
		}
		switch {
		case size < responseHeader || size > maxResponse || have > size:
			return nil, fmt.Errorf("TPM response has %d bytes, its header has length %d", have, size)
		case have == size:
			return response[:size], nil
		}
	}
}

// wait blocks until the device is readable. It returns errTimeout at the deadline.
func (d *device) wait() error {
	for {
		left := time.Until(d.deadline)
		if left <= 0 {
			d.timedOut = true
			return errTimeout
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return nil
		}
	}
}

// Close closes the device. A device that does not respond stays open until the
// process ends: close would block in the kernel, for minutes, until the command
// completes.
func (d *device) Close() error {
	if d.timedOut {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(d.fd))
}
