package network

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
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

// watchFirst and watchMax are the longest first and the longest last wait until
// a watch that has broken off begins again; each is at least half as long.
const (
	watchFirst = 2 * time.Second
	watchMax   = time.Minute
)

// errEnded says that a watch gave no reason.
var errEnded = errors.New("the watch has ended by itself")

// moved is told of a change of what the host has.
func (n *Network) moved() {
	n.Look()
	if n.cfg.Moved != nil {
		n.cfg.Moved()
	}
}

// watch runs one watch until ctx ends. One that breaks off is begun again, and
// the log told once until one has lasted; while there is none, the slow look is
// left. A kernel without the protocol is not asked again: each time it would
// look for a module.
func (n *Network) watch(ctx context.Context, watch func(ctx context.Context, told func()) error, told func()) {
	backoff := apiclient.Backoff{First: watchFirst, Max: watchMax}
	began := time.Now()
	err := watch(ctx, told)
	for said := false; ctx.Err() == nil; {
		if time.Since(began) >= watchMax {
			backoff.Reset()
			said = false
		}
		if !said {
			n.cfg.Log.Warn("changes of the host's network are noticed late, as long as they cannot be watched", "error", cmp.Or(err, errEnded))
			said = true
		}
		if errors.Is(err, unix.EPROTONOSUPPORT) || !pause(ctx, backoff.Next()) {
			return
		}
		began = time.Now()
		err = watchAgain(ctx, watch, told)
	}
}

// watchAgain runs a watch, and tells what nobody has heard before it listened.
func watchAgain(ctx context.Context, watch func(ctx context.Context, told func()) error, told func()) error {
	listens := time.AfterFunc(settle, told)
	defer listens.Stop()
	return watch(ctx, told)
}
