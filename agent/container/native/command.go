package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/oci"
	"github.com/tinylet/tinylet/agent/container/native/sessions"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/net/netns"
)

// running returns a container that runs.
func (d *Driver) running(id string) (*podContainer, error) {
	c, err := d.container(id)
	if err != nil {
		return nil, err
	}
	if state := c.snapshot().GetState(); state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, fmt.Errorf("container %q is in state %s", id, state)
	}
	return c, nil
}

// commandIn returns a command in a container, with the environment and the user of its first
// process.
func (d *Driver) commandIn(id string, cmd []string, terminal bool) (*oci.Command, error) {
	c, err := d.running(id)
	if err != nil {
		return nil, err
	}
	data, err := atomicfile.Read(filepath.Join(d.containerDir(id), fileProcess), maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read process of container %q: %w", id, err)
	}
	var p specs.Process
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("decode process of container %q: %w", id, err)
	}
	p.Args, p.Terminal = cmd, terminal
	if data, err = json.Marshal(&p); err != nil {
		return nil, fmt.Errorf("encode process of container %q: %w", id, err)
	}
	h := d.handlerOf(c)
	return &oci.Command{
		Program: h.Program, Container: id, Process: data, Dir: d.execDir(), Env: os.Environ(), Terminal: terminal, SendsTerminal: h.SendsTerminal,
	}, nil
}

// limited keeps the first bytes that are written to it, and drops the rest.
type limited struct {
	bytes.Buffer
	most int
}

func (l *limited) Write(b []byte) (int, error) {
	room := max(l.most-l.Buffer.Len(), 0)
	_, _ = l.Buffer.Write(b[:min(room, len(b))])
	return len(b), nil
}

// ReadFrom hides that of the buffer, which has no limit.
func (l *limited) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{l}, r) }

// ExecSync implements container.Containers.
func (d *Driver) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	command, err := d.commandIn(id, cmd, false)
	if err != nil {
		return nil, nil, 0, err
	}
	stdoutOf, stderrOf := &limited{most: container.MaxExecOutput}, &limited{most: container.MaxExecOutput}
	command.Stdout, command.Stderr = stdoutOf, stderrOf
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("command timed out after %s: %w", timeout, container.ErrTimeout))
		defer cancel()
	}
	code, err := command.Run(ctx)
	return stdoutOf.Bytes(), stderrOf.Bytes(), code, err
}

// Exec implements sessions.Runtime.
func (d *Driver) exec(ctx context.Context, id string, cmd []string, s sessions.Streams) (int32, error) {
	command, err := d.commandIn(id, cmd, s.Terminal)
	if err != nil {
		return 0, err
	}
	command.Stdin, command.Stdout, command.Stderr, command.Resize = s.Stdin, s.Stdout, s.Stderr, s.Resize
	return command.Run(ctx)
}

// attach implements sessions.Runtime.
func (d *Driver) attach(ctx context.Context, id string, s sessions.Streams) error {
	c, err := d.running(id)
	if err != nil {
		return err
	}
	outRead, outWrite, err := pipeFor(s.Stdout)
	if err != nil {
		return err
	}
	errRead, errWrite, err := pipeFor(s.Stderr)
	if err != nil {
		return errors.Join(err, closeFile(outRead), closeFile(outWrite))
	}
	input, err := d.Keeper.Attach(ctx, id, outWrite, errWrite)
	err = errors.Join(err, closeFile(outWrite), closeFile(errWrite))
	if err != nil {
		return errors.Join(keeperError(err), closeFile(outRead), closeFile(errRead))
	}
	done := make(chan struct{}, 2)
	copyTo := func(to io.Writer, from *os.File) {
		if from != nil {
			_, _ = io.Copy(to, from) // ends with the container or the client
			_ = from.Close()
		}
		done <- struct{}{}
	}
	go copyTo(s.Stdout, outRead)
	go copyTo(s.Stderr, errRead)
	if s.Stdin != nil && input != nil {
		go func() {
			_, _ = io.Copy(input, s.Stdin)
			_ = input.Close()
			if c.stdinOnce {
				_ = d.Keeper.CloseStdin(context.WithoutCancel(ctx), id)
			}
		}()
	} else if input != nil {
		_ = input.Close()
	}
	if s.Resize != nil {
		go func() {
			for size := range s.Resize {
				_ = d.Keeper.Resize(ctx, id, size)
			}
		}()
	}
	// A client that leaves does not wait for output of the container.
	defer context.AfterFunc(ctx, func() { _ = errors.Join(closeFile(outRead), closeFile(errRead)) })()
	for range 2 {
		<-done
	}
	return cancelled(ctx)
}

// pipeFor returns a pipe for an output of a client, or nils without one.
func pipeFor(w io.Writer) (read, write *os.File, err error) {
	if w == nil {
		return nil, nil, nil
	}
	return os.Pipe()
}

// dialTimeout limits a connection to a port in a pod.
const dialTimeout = 10 * time.Second

// portForward implements sessions.Runtime.
func (d *Driver) portForward(ctx context.Context, sandboxID string, port int32, client io.ReadWriteCloser) error {
	s, err := d.sandbox(sandboxID)
	if err != nil {
		return err
	}
	if s.state() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return fmt.Errorf("sandbox %q is not ready", sandboxID)
	}
	conn, err := d.dial(ctx, s, port)
	if err != nil {
		return fmt.Errorf("connect to port %d of sandbox %q: %w", port, sandboxID, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	go func() {
		_, _ = io.Copy(conn, client)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	_, _ = io.Copy(client, conn)
	return conn.Close()
}

// dial connects to a port of localhost in the network namespace of a sandbox: IPv4, else IPv6.
func (d *Driver) dial(ctx context.Context, s *podSandbox, port int32) (conn net.Conn, err error) {
	connect := func() error {
		var failed error
		for _, host := range []string{"127.0.0.1", "::1"} {
			dialer := net.Dialer{Timeout: dialTimeout}
			if conn, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err == nil {
				return nil
			}
			failed = errors.Join(failed, err)
		}
		return failed
	}
	if hostNetwork(s.config) {
		return conn, connect()
	}
	ns, err := netns.Open(d.namespaces(s.id, s.config).NetNS)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	return conn, netns.Do(ns, connect)
}
