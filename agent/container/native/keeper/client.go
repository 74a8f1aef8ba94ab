package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/oci"
)

// Client speaks to the keeper of a directory. Each call connects anew, and returns when the
// keeper has responded or ctx ends; the keeper may complete the request nevertheless. The
// methods are safe for concurrent use.
type Client struct {
	Dir string
}

// ErrUnavailable means that no keeper answers.
var ErrUnavailable = errors.New("the keeper is not reachable")

// Hello returns what the keeper says of itself.
func (c Client) Hello(ctx context.Context) (Hello, error) {
	r, _, err := c.call(ctx, &request{Op: opHello})
	if err != nil || r.Hello == nil {
		return Hello{}, err
	}
	return *r.Hello, nil
}

// Start starts a container, and returns when its first process runs.
func (c Client) Start(ctx context.Context, s *Start) (Container, error) {
	r, _, err := c.call(ctx, &request{Op: opStart, Start: s})
	if err != nil || r.Container == nil {
		return Container{}, err
	}
	return *r.Container, nil
}

// List returns all containers of the keeper, sorted by ID.
func (c Client) List(ctx context.Context) ([]Container, error) {
	var out []Container
	for q := (&request{Op: opList}); ; q.After = out[len(out)-1].ID {
		r, _, err := c.call(ctx, q)
		if err != nil {
			return nil, err
		}
		out = append(out, r.Containers...)
		if !r.More || len(r.Containers) == 0 {
			return out, nil
		}
	}
}

// Acknowledge makes the keeper forget a container that has exited, or whose start was
// interrupted.
func (c Client) Acknowledge(ctx context.Context, id string) error {
	_, _, err := c.call(ctx, &request{Op: opAck, ID: id})
	return err
}

// Reopen continues the log of a running container in a new file at its path.
func (c Client) Reopen(ctx context.Context, id string) error {
	_, _, err := c.call(ctx, &request{Op: opReopen, ID: id})
	return err
}

// CloseStdin ends the standard input of a running container, when no client of Attach has
// it open any longer.
func (c Client) CloseStdin(ctx context.Context, id string) error {
	_, _, err := c.call(ctx, &request{Op: opCloseStdin, ID: id})
	return err
}

// Resize sets the size of the terminal of a running container.
func (c Client) Resize(ctx context.Context, id string, size oci.Size) error {
	_, _, err := c.call(ctx, &request{Op: opResize, ID: id, Size: &size})
	return err
}

// Attach copies the output of a running container to files, which may be nil, from now on.
// The keeper closes its copies at the end of the output; the caller closes the files. A file
// that would block loses output. input is the terminal or the standard input of the
// container, which the caller closes, or nil if it has none.
func (c Client) Attach(ctx context.Context, id string, stdout, stderr *os.File) (input *os.File, err error) {
	q := &request{Op: opAttach, ID: id, Stdout: stdout != nil, Stderr: stderr != nil}
	var files []*os.File
	for _, f := range []*os.File{stdout, stderr} {
		if f != nil {
			files = append(files, f)
		}
	}
	_, fds, err := c.call(ctx, q, files...)
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	oci.CloseAll(fds[1:])
	return os.NewFile(uintptr(fds[0]), "stdin of "+id), nil
}

// Upgrade makes the keeper execute a program in its place, which goes on with the same
// containers and the same PID. It returns when the keeper has done so; Hello then has the
// build of the program.
func (c Client) Upgrade(ctx context.Context, program *os.File) error {
	_, _, err := c.call(ctx, &request{Op: opUpgrade}, program)
	if errors.Is(err, io.EOF) { // the connection ends with the former program
		return nil
	}
	return err
}

// Watch calls handle with each container that has exited and is not acknowledged, those of
// before first, until ctx ends or the connection breaks. It calls handle in one goroutine.
func (c Client) Watch(ctx context.Context, handle func(Container)) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	defer func() { _ = conn.Close() }()
	if err := sendRequest(conn, &request{Op: opWatch}, nil); err != nil {
		return c.failed(ctx, err)
	}
	buffer := make([]byte, maxPacket)
	for {
		r, fds, err := receive(conn, buffer)
		oci.CloseAll(fds)
		if err != nil {
			return c.failed(ctx, err)
		}
		if err := r.err(); err != nil {
			return err
		}
		if r.Container != nil {
			handle(*r.Container)
		}
	}
}

func (c Client) dial(ctx context.Context) (*net.UnixConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unixpacket", SocketPath(c.Dir))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return conn.(*net.UnixConn), nil
}

// call sends a request with files, and returns the response with the descriptors that came
// with it, which the caller owns.
func (c Client) call(ctx context.Context, q *request, files ...*os.File) (*response, []int, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := sendRequest(conn, q, files); err != nil {
		return nil, nil, c.failed(ctx, err)
	}
	r, fds, err := receive(conn, make([]byte, maxPacket))
	if err == nil {
		err = r.err()
	} else {
		err = c.failed(ctx, err)
	}
	if err != nil {
		oci.CloseAll(fds)
		return nil, nil, err
	}
	return r, fds, nil
}

// failed is the error of a connection.
func (c Client) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func sendRequest(conn *net.UnixConn, q *request, files []*os.File) error {
	data, err := json.Marshal(q)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		raw, err := f.SyscallConn() // Fd would make the file block
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return err
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(data, rights, nil)
	return err
}

func receive(conn *net.UnixConn, buffer []byte) (*response, []int, error) {
	data, fds, err := oci.ReadPacket(conn, buffer)
	if err != nil {
		return nil, nil, err
	}
	if len(data) == 0 {
		return nil, fds, io.EOF
	}
	r := new(response)
	if err := json.Unmarshal(data, r); err != nil {
		oci.CloseAll(fds)
		return nil, nil, err
	}
	return r, fds, nil
}
