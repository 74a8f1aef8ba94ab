// Package remotecommand is the client of the protocol that runs a command in
// a container: what kubectl exec speaks with a node
// (k8s.io/cri-streaming/pkg/streaming/remotecommand in Kubernetes 1.36). It
// owns the upgrade, the frames, the streams of a session and what the end of
// one means. It knows no agent: the connection comes from a function.
//
//	        ┌ error  ◄── how the command ended: a Status
//	SPDY ───┤ stdin  ──► data, and its end alone
//	        │ stdout, stderr ◄──
//	        └ resize ──► the terminal's sizes, as JSON
//
// SPDY/3.1, and not WebSocket: over that, the streaming servers of today's
// runtimes speak v4.channel.k8s.io only, which cannot tell a command that its
// input has ended; v5, which can, is translated by a kubelet, and agent/server/streaming
// does not. The client's half of SPDY is written here: it opens five streams
// and never a sixth, needs nothing of the headers that come back, and sends
// its own uncompressed, so it has neither zlib nor its dictionary. Measured
// against github.com/moby/spdystream in ARCHITECTURE.md.
//
// SPDY's flow control does not exist in this protocol: no server has it. Who
// reads slowly is waited for by the connection itself.
package remotecommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// beginTimeout is how long it may take until a session has begun: the agent
// waits 30 s for the runtime, and the runtime 30 s for the streams.
const beginTimeout = time.Minute

// Errors of Run, for errors.Is.
var (
	// ErrNoAnswer says that the session had not begun after a minute.
	ErrNoAnswer = fmt.Errorf("no session after %v", beginTimeout)
	// ErrBroken says that a session ended and nobody told how the command did:
	// the runtime or the agent ended, or the session was idle for too long.
	ErrBroken = errors.New("the session broke off before the command's end was told")
)

// Refused is an answer of HTTP that is no session.
type Refused struct {
	// Code is the status of HTTP; 101 for an upgrade to something else.
	Code int
	// Text is what the server says, up to 16 KiB, as it came.
	Text string
}

// Error is the server's text.
func (r *Refused) Error() string { return r.Text }

// Failed is a command that could not be run, or whose end the runtime does not
// know.
type Failed struct {
	// Text is what the runtime says, as it came.
	Text string
}

// Error is the runtime's text.
func (f *Failed) Error() string { return f.Text }

// Size is that of a terminal in characters.
type Size struct{ Width, Height uint16 }

// Session is one command, or one attachment, to be.
type Session struct {
	// Dial connects to the server. It must not be nil.
	Dial func(ctx context.Context) (net.Conn, error)
	// Path is that of the kubelet's API, such as
	// /exec/NAMESPACE/POD/CONTAINER.
	Path string
	// Command is what /exec runs, with its arguments; without a shell.
	Command []string
	// Stdin is the command's input, nil for none. It is read until its end,
	// which is passed on, by a goroutine that Run waits for. Run closes it
	// when the session ends; that must end a Read that waits.
	Stdin io.ReadCloser
	// Stdout and Stderr get what the command writes; nil does not ask for it.
	// Run cannot end while a Write blocks. One of the three streams must be
	// there.
	Stdout, Stderr io.Writer
	// TTY gives the command a terminal. Then its errors come with its output:
	// Stderr gets nothing.
	TTY bool
	// Begun is called once the server has taken the session, before Stdin is
	// read or an output written; nil is not called. It must not block.
	Begun func()
	// Sizes are the terminal's, the first one included; nil has none. It is
	// read while the session lasts, and need not be closed.
	Sizes <-chan Size
}

// Run runs the session and blocks until it is over, in memory that does not
// depend on what goes through. It answers the command's exit code, and nil
// also where that is not 0. Otherwise there is no code, and the error is a
// *Refused or a *Failed, ErrNoAnswer, ErrBroken, the cause of ctx's end, or
// what Dial, Stdin, Stdout or Stderr failed with.
func Run(ctx context.Context, c Session) (code int, err error) {
	closeStdin := func() {}
	if c.Stdin != nil {
		closeStdin = sync.OnceFunc(func() { _ = c.Stdin.Close() }) // it was read only
	}
	defer closeStdin()
	if c.Dial == nil || c.Stdin == nil && c.Stdout == nil && c.Stderr == nil {
		return 0, errors.New("run a command: no way to a server, or no stream")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(beginTimeout, func() { cancel(ErrNoAnswer) })
	defer late.Stop()
	conn, err := c.Dial(ctx)
	if err != nil {
		return 0, because(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if stop() {
			conn.Close()
		}
	}()
	in, err := begin(conn, &c)
	if err != nil {
		return 0, because(ctx, err)
	}
	s := newSession(conn, in, &c, cancel)
	s.closeStdin = closeStdin
	s.begun = func() {
		late.Stop()
		if c.Begun != nil {
			c.Begun()
		}
	}
	err = s.run(ctx)                         // never nil
	if status := s.status(); status != nil { // told before whatever came then
		return status.code, status.err
	}
	return 0, because(ctx, err)
}

// because is the reason for a connection's error: the one that it was closed
// for, if it was.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
