// Package health detects the faults of the agent that a restart cures: a loop that makes
// no progress, a lock that is held too long. systemd's watchdog uses the result (package
// sdnotify).
//
// The checks do not cover what a restart does not cure: the state of the
// container runtime, the API server, the network and the disks. An agent that
// waits for one of them is healthy. A lock that is held across such a wait is
// therefore not checked.
//
// Supervisor runs the tasks of the agent, and restarts those that return early.
package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// Check is a test for one fault.
type Check struct {
	// Name is what is checked, in one or two words.
	Name string
	// Run returns nil as soon as the check passes. When ctx ends it must
	// return, with the reason why the check has not passed.
	Run func(ctx context.Context) error
}

// Run runs all checks concurrently, waits for all, and returns their errors, joined, each
// prefixed with the check's name. It returns nil if all pass. The context of the checks
// ends after limit, which must be long enough for a slow board under load.
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

// ErrLockHeld means that a lock was held until the check ended.
var ErrLockHeld = errors.New("the lock is held")

// pollInterval is the interval between attempts to take a held lock.
const pollInterval = 10 * time.Millisecond

// CheckLock waits until it can take a lock, and releases it at once. It returns
// ErrLockHeld if ctx ends first. try and unlock are the lock's methods, such as TryLock
// and Unlock.
func CheckLock(ctx context.Context, try func() bool, unlock func()) error {
	for !try() {
		if !wait.Pause(ctx, pollInterval) {
			return ErrLockHeld
		}
	}
	unlock()
	return nil
}
