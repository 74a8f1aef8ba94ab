package network

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// slowLook is the interval of reconciles without an event.
const slowLook = 10 * time.Minute

// retryLimit is the longest backoff after an error.
const retryLimit = 30 * time.Second

// settle is the delay of the second reconcile after a start: a change may have
// happened before the watches were established, and other services load their rules
// as a board starts.
const settle = 5 * time.Second

// between is the minimum interval between two reconciles, because others may change
// things all the time.
const between = 500 * time.Millisecond

// wait returns how long to wait for an event before the next reconcile.
func (n *Network) wait(err error, first bool) time.Duration {
	wait := n.patience(err, first)
	if due := n.due(); due > 0 {
		wait = min(wait, due)
	}
	return wait
}

// patience returns that wait without regard to a pending configuration.
func (n *Network) patience(err error, first bool) time.Duration {
	if err != nil {
		wait := n.backoff.Next()
		if errors.As(err, new(doubt)) {
			return wait
		}
		return min(wait, retryLimit)
	}
	n.backoff.Reset()
	if first {
		return settle
	}
	return slowLook
}

// rest waits for d or for a trigger. It returns false if ctx ends first.
func (n *Network) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-n.news:
	case <-timer.C:
	}
	return true
}

// watchFirst and watchMax are the upper limits of the first and of the longest
// backoff before a failed watch starts again. Each backoff is at least half of its
// limit.
const (
	watchFirst = 2 * time.Second
	watchMax   = time.Minute
)

// errEnded means that a watch returned without an error.
var errEnded = errors.New("watch ended without an error")

// moved handles a change of the host's network.
func (n *Network) moved() {
	n.Look()
	if n.cfg.Moved != nil {
		n.cfg.Moved()
	}
}

// watch runs one watch until ctx ends. A failed watch starts again after a backoff.
// The log has one warning until a watch has lasted for watchMax. While there is no
// watch, only the periodic reconcile is left. If the kernel lacks the protocol, the
// watch does not start again: each attempt would make the kernel search for a
// module.
func (n *Network) watch(ctx context.Context, watch func(ctx context.Context, told func()) error, told func()) {
	backoff := wait.Backoff{First: watchFirst, Max: watchMax}
	began := time.Now()
	err := watch(ctx, told)
	for said := false; ctx.Err() == nil; {
		if time.Since(began) >= watchMax {
			backoff.Reset()
			said = false
		}
		if !said {
			n.cfg.Log.Warn("cannot watch host network, check periodically", "error", cmp.Or(err, errEnded))
			said = true
		}
		if errors.Is(err, unix.EPROTONOSUPPORT) || !wait.Pause(ctx, backoff.Next()) {
			return
		}
		began = time.Now()
		err = watchAgain(ctx, watch, told)
	}
}

// watchAgain runs a watch, and calls told after settle, because a change may have
// happened before the watch was established.
func watchAgain(ctx context.Context, watch func(ctx context.Context, told func()) error, told func()) error {
	listens := time.AfterFunc(settle, told)
	defer listens.Stop()
	return watch(ctx, told)
}
