package network

import (
	"context"
	"errors"
	"time"
)

// slowLook is how long nothing has to be told before all is looked at again.
const slowLook = 10 * time.Minute

// retryLimit is the longest wait after something failed.
const retryLimit = 30 * time.Second

// settle is when all is looked at a second time: the watches may have begun
// behind the first look, and as a board starts others load their rules.
const settle = 5 * time.Second

// between is the shortest time from look to look: somebody may change things
// all the time.
const between = 500 * time.Millisecond

// wait is how long nothing has to be told until the next look.
func (n *Network) wait(err error, first bool) time.Duration {
	wait := n.patience(err, first)
	if due := n.due(); due > 0 {
		wait = min(wait, due)
	}
	return wait
}

// patience is that wait without what is late.
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

// rest waits until there is reason to look, and says whether ctx still lives.
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

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// watch runs one watch, which ends early only where the kernel cannot tell:
// the slow look is left then.
func (n *Network) watch(ctx context.Context, watch func(ctx context.Context, told func()) error) {
	err := watch(ctx, func() {
		n.Look()
		if n.cfg.Moved != nil {
			n.cfg.Moved()
		}
	})
	if err != nil && ctx.Err() == nil {
		n.cfg.Log.Warn("changes of the host's network are noticed late", "error", err)
	}
}
