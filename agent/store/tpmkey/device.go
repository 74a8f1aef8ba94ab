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

// Device is where the kernel shares a TPM 2.0 between those who use it.
const Device = "/dev/tpmrm0"

const (
	// patience is how long a TPM is waited for in all: some need two seconds
	// for a key of an elliptic curve. The start of the agent waits for it.
	patience = 20 * time.Second
	// maxResponse is more than a TPM answers.
	maxResponse = 4096
	// responseHeader is tag, length and code.
	responseHeader = 10
)

// errSilent says that the TPM has not answered in time.
var errSilent = errors.New("the TPM does not answer: cut the power of the board for some seconds; if that does not help, it is broken")

// device speaks to a TPM. It implements go-tpm's transport.TPM.
type device struct {
	fd       int
	deadline time.Time
	silent   bool
}

// openDevice opens a TPM's device, or the socket of an emulator.
func openDevice(path string, patience time.Duration) (*device, error) {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	fd, op := -1, "open"
	var err error
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		// Else write returns only when the TPM has answered.
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	case unix.S_IFSOCK:
		op = "connect"
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err == nil {
			if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
				_ = unix.Close(fd)
			}
		}
	default:
		err = errors.New("it is not a TPM's device")
	}
	if err != nil {
		return nil, &os.PathError{Op: op, Path: path, Err: err}
	}
	return &device{fd: fd, deadline: time.Now().Add(patience)}, nil
}

// Send implements transport.TPM: it gives the TPM a command and answers its
// response.
func (d *device) Send(command []byte) ([]byte, error) {
	if d.silent {
		return nil, errSilent // what comes now answers an earlier command
	}
	// A command has less than a socket's buffer, and a device takes it whole.
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
			return nil, fmt.Errorf("read from the TPM: %w", io.ErrUnexpectedEOF)
		}
		have += n
		if have >= responseHeader {
			size = int(binary.BigEndian.Uint32(response[2:]))
		}
		switch {
		case size < responseHeader || size > maxResponse || have > size:
			return nil, fmt.Errorf("the TPM answers %d bytes and says that they are %d", have, size)
		case have == size:
			return response[:size], nil
		}
	}
}

// wait blocks until there is something to read.
func (d *device) wait() error {
	for {
		left := time.Until(d.deadline)
		if left <= 0 {
			d.silent = true
			return errSilent
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

// Close ends what Open began. A device that does not answer stays open until
// the process ends: to close it, the kernel waits for the command, for minutes.
func (d *device) Close() error {
	if d.silent {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(d.fd))
}
