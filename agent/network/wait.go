package network

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// resyncInterval is the interval of reconciles without an event.
const resyncInterval = 10 * time.Minute

// retryLimit is the longest backoff after an error.
const retryLimit = 30 * time.Second

// secondSyncDelay is the delay of the second reconcile after a start: a change may have
// happened before the watches were established, and other services load their rules
// as a board starts.
const secondSyncDelay = 5 * time.Second

// minSyncInterval is the minimum interval between two reconciles, because others may change
// things all the time.
const minSyncInterval = 500 * time.Millisecond

// wait returns how long to wait for an event before the next reconcile.
func (n *Network) wait(err error, first bool) time.Duration {
	wait := n.syncInterval(err, first)
	if due := n.flushDelay(); due > 0 {
		wait = min(wait, due)
	}
	return wait
}

// syncInterval returns that wait without regard to a pending configuration.
func (n *Network) syncInterval(err error, first bool) time.Duration {
	if err != nil {
		wait := n.backoff.Next()
		if errors.As(err, new(invalidNetworks)) {
			return wait
		}
		return min(wait, retryLimit)
	}
	n.backoff.Reset()
	if first {
		return secondSyncDelay
	}
	return resyncInterval
}

// waitForTrigger waits for d or for a trigger. It returns false if ctx ends first.
func (n *Network) waitForTrigger(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-n.trigger:
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

// hostChanged handles a change of the host's network.
func (n *Network) hostChanged() {
	n.Trigger()
	if n.cfg.OnAddressesChanged != nil {
		n.cfg.OnAddressesChanged()
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
	listens := time.AfterFunc(secondSyncDelay, told)
	defer listens.Stop()
	return watch(ctx, told)
}
