package handler

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
)

// errNoHandler says that a manifest asks for no action, or for one that this
// place does not know.
var errNoHandler = errors.New("no handler that can be run here")

// Probe runs a probe's action once. It blocks for timeout at most, a command
// for two seconds more if the runtime does not end it, and before that until
// it may start: a few commands do at a time. An error says that
// there is no result, of which nothing may follow; it is ctx's cause when ctx
// has ended.
func (r *Runner) Probe(ctx context.Context, h *v1.ProbeHandler, t Target, timeout time.Duration) (Result, error) {
	result, err := r.probe(ctx, h, &t, timeout)
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	return result, err
}

func (r *Runner) probe(ctx context.Context, h *v1.ProbeHandler, t *Target, timeout time.Duration) (Result, error) {
	switch {
	case h.Exec != nil:
		return r.probeExec(ctx, h.Exec, t, timeout)
	case h.HTTPGet != nil:
		return r.probeHTTP(ctx, h.HTTPGet, t, timeout)
	case h.TCPSocket != nil:
		return r.probeTCP(ctx, h.TCPSocket, t, timeout)
	case h.GRPC != nil:
		return r.probeGRPC(ctx, h.GRPC, t, timeout)
	}
	return Result{}, errNoHandler
}

// probeTCP succeeds when a connection can be opened.
func (r *Runner) probeTCP(ctx context.Context, a *v1.TCPSocketAction, t *Target, timeout time.Duration) (Result, error) {
	port, err := portOf(a.Port, t.Container)
	if err != nil {
		return Result{}, err
	}
	address, err := t.address(a.Host, port)
	if err != nil {
		return Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := r.dial(limited, "tcp", address)
	if err != nil {
		return Result{Status: Failure, Output: err.Error()}, nil
	}
	_ = conn.Close() // the connection was open: that is the answer
	return Result{Status: Success}, nil
}
