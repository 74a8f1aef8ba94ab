package handler

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
)

// errNoHandler means that a probe or hook has no action, or one that is not
// supported.
var errNoHandler = errors.New("no supported handler")

// Probe runs the action of a probe once. It blocks for at most timeout. A command
// may take two seconds more if the runtime does not end it; before that it waits
// until it may start, because concurrent commands are limited. An error means
// that there is no result, and the run must not count. The error is the cause of
// ctx if ctx has ended.
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

// probeTCP succeeds if it can open a connection.
func (r *Runner) probeTCP(ctx context.Context, a *v1.TCPSocketAction, t *Target, timeout time.Duration) (Result, error) {
	address, err := t.address(a.Host, a.Port)
	if err != nil {
		return Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := r.dial(limited, "tcp", address)
	if err != nil {
		return Result{Status: Failure, Output: err.Error()}, nil
	}
	_ = conn.Close()
	return Result{Status: Success}, nil
}
