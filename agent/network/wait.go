package network

import (
	"context"
	"errors"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// resyncInterval is the interval of reconciles without an event.
const resyncInterval = 10 * time.Minute

// retryLimit is the longest backoff after an error other than invalidNetworks.
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
	if n.takeRestart() {
		n.backoff.Reset()
	}
	if err != nil {
		wait := n.backoff.Next()
		if errors.As(err, new(invalidNetworks)) {
			if left := n.untilFallback(); left > 0 && len(n.cfg.Fallback) > 0 && errors.Is(err, errUnanswered) {
				wait = min(wait, left)
			}
			return wait
		}
		return min(wait, retryLimit)
	}
	n.backoff.Reset()
	wait := resyncInterval
	if first {
		wait = secondSyncDelay
	}
	if n.pending != nil {
		wait = min(wait, max(0, directWriteInterval-time.Since(n.directWritten)))
	}
	return wait
}

// hostChanged handles a notification of WatchHost.
func (n *Network) hostChanged() {
	n.Trigger()
	for _, changed := range n.cfg.OnAddressesChanged {
		changed()
	}
}

// watch runs one watch until ctx ends. While the watch fails, its changes are found only
// by reconciles that other events or the resync interval trigger.
func (n *Network) watch(ctx context.Context, watch func(ctx context.Context, notify func()) error, notify func()) {
	wait.Watch(ctx, watch, notify, secondSyncDelay, func(err error) {
		n.cfg.Log.Warn("cannot watch host network, check periodically", "error", err)
	})
}
