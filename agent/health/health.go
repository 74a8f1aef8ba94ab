// Package health finds the faults of the agent that a restart of it cures: a
// loop that makes no progress, a lock that is held too long. Whoever can
// restart the agent, such as systemd's watchdog, goes by it.
//
// What a restart does not cure is no business of these checks: the state of
// the container runtime, of the API server, of the network and of disks. An
// agent that waits for one of them is healthy. So a lock that is held across
// such a wait is not checked.
package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Check is one fault that is looked for.
type Check struct {
	// Name says what is checked, in a word or two.
	Name string
	// Run returns nil as soon as it sees that all is well, or why it is not
	// when ctx ends. It must return then.
	Run func(ctx context.Context) error
}

// Run makes all checks at the same time, and answers what is wrong, by the
// checks' names. Each has the limit to see that all is well: long enough for
// a slow board under load, which gets its turn late and not never.
func Run(ctx context.Context, limit time.Duration, checks []Check) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			if err := c.Run(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ErrHeld says that a lock was held all the time.
var ErrHeld = errors.New("the lock is held")

// poll is how often a lock is tried that is held.
const poll = 10 * time.Millisecond

// Free waits until a lock could be taken, and gives it back at once. It fails
// with ErrHeld when ctx ends first. try and unlock are the lock's methods,
// such as TryLock and Unlock.
func Free(ctx context.Context, try func() bool, unlock func()) error {
	var ticker *time.Ticker
	for !try() {
		if ticker == nil {
			ticker = time.NewTicker(poll)
			defer ticker.Stop()
		}
		select {
		case <-ctx.Done():
			return ErrHeld
		case <-ticker.C:
		}
	}
	unlock()
	return nil
}
