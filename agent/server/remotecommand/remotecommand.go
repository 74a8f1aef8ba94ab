// Package remotecommand runs a command in a container over a connection to the agent,
// or attaches to one, with Kubernetes' client of the protocol
// (k8s.io/client-go/tools/remotecommand), which kubectl exec uses. It owns what a
// command line needs in addition: the time limit of a session's start, the HTTP errors
// with their codes, the errors of the caller's streams, and the difference between a
// command that succeeded and a session that ended without a result.
//
// It uses SPDY/3.1 instead of WebSocket: over WebSocket, the streaming servers of
// today's runtimes only speak v4.channel.k8s.io, which cannot signal the end of stdin.
// v5, which can, is translated by the kubelet, but not by agent/server/streaming.
package remotecommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
)

// beginTimeout limits the start of a session: the agent waits 30 s for the runtime,
// and the runtime 30 s for the streams.
const beginTimeout = time.Minute

// Errors of Run, for errors.Is.
var (
	// ErrNoAnswer means that the session did not start within a minute.
	ErrNoAnswer = fmt.Errorf("session did not start within %v", beginTimeout)
	// ErrNoStatus means that a session ended without a result of the command: the
	// runtime or the agent ended, or the session reached its idle timeout.
	ErrNoStatus = errors.New("session ended without the command's exit status")
)

// ResponseError is an HTTP response that did not start a session.
type ResponseError struct {
	// Code is the HTTP status code; 101 for an upgrade to another protocol.
	Code int
	// Text is the server's text, up to 16 KiB, without leading and trailing white space,
	// or a description of the response.
	Text string
}

// Error returns the server's text.
func (r *ResponseError) Error() string { return r.Text }

// CommandError means that the command could not be run, or that the runtime does not know
// its result.
type CommandError struct {
	// Text is the text of the runtime, or says which stream it rejected.
	Text string
}

// Error returns the runtime's text.
func (f *CommandError) Error() string { return f.Text }

// Size is the size of a terminal in characters.
type Size = remotecommand.TerminalSize

// Session configures one command or one attachment.
type Session struct {
	// Dial connects to the server. It must not be nil.
	Dial func(ctx context.Context) (net.Conn, error)
	// Path is a path of the kubelet's API, such as
	// /exec/NAMESPACE/POD/CONTAINER.
	Path string
	// Command is the command of /exec, with its arguments. It is not run in a
	// shell.
	Command []string
	// Stdin is the command's input, nil for none. A goroutine that Run waits for
	// reads it until its end, which is signaled to the command. Run closes Stdin
	// when the session ends; Close must unblock Read.
	Stdin io.ReadCloser
	// Stdout and Stderr receive the command's output; nil does not request the
	// stream. Run does not return while a Write blocks. One of the three streams is
	// required.
	Stdout, Stderr io.Writer
	// TTY gives the command a terminal. Its errors are then part of its output, and
	// Stderr receives nothing.
	TTY bool
	// OnStart is called when the server has accepted the session, before Stdin is
	// read or output is written. It may be nil. It must not block.
	OnStart func()
	// Sizes are the terminal's sizes, including the initial one; nil has none. It
	// is read during the session, and need not be closed.
	Sizes <-chan Size
}

// Run runs the session and blocks until its end. It returns the command's exit code and a
// nil error, also for a nonzero code. If there is no exit code, the error is a
// *ResponseError or a *CommandError, ErrNoAnswer, ErrNoStatus, the cause of ctx's end, the
// error of Dial, Stdin, Stdout or Stderr, or an error of the connection or the protocol.
func Run(ctx context.Context, c Session) (code int, err error) {
	closeStdin := func() {}
	if c.Stdin != nil {
		closeStdin = sync.OnceFunc(func() { _ = c.Stdin.Close() }) // only read, so the error is irrelevant
	}
	defer closeStdin()
	if c.Dial == nil || c.Stdin == nil && c.Stdout == nil && c.Stderr == nil {
		return 0, errors.New("remotecommand: Dial, and one of Stdin, Stdout and Stderr are required")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(beginTimeout, func() { cancel(ErrNoAnswer) })
	defer late.Stop()
	conn, err := c.Dial(ctx)
	if err != nil {
		return 0, because(ctx, err)
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	onStart := func() {
		late.Stop()
		if c.OnStart != nil {
			c.OnStart()
		}
	}
	u, err := newUpgrader(conn, &c, onStart, cancel)
	if err != nil {
		conn.Close()
		return 0, err
	}
	to := url.URL{Scheme: "http", Host: "node", Path: c.Path, RawQuery: query(&c)}
	executor, err := remotecommand.NewSPDYExecutorForProtocols(u, spdy.NewUpgraderForStreaming(u), http.MethodPost, &to, protocols...)
	if err != nil {
		conn.Close()
		return 0, err
	}
	options, release := localStreams(ctx, &c, cancel)
	err = executor.StreamWithContext(klog.NewContext(ctx, klog.Logger{}), options)
	code, err = u.outcome(ctx, err)
	conn.Close()
	closeStdin()
	release()
	return code, err
}

// because returns the cause of a connection's error: the cause of ctx's end, which
// closes the connection, or else err.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
