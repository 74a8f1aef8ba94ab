// Package clock detects a wall clock that is behind. A board without a battery may
// start in 1970, and has the right time only after something has set its clock.
//
// The clock is plausible when it is not before a lower bound: the build time of the
// binary, or a later time recorded on disk. TLS waits for a plausible clock. To a
// clock that is behind, every certificate is from the future, and an expired
// certificate may look valid. A timerfd(2) with TFD_TIMER_CANCEL_ON_SET reports when
// the clock is set. The clock is polled only while that timer fails.
package clock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// recordTrust is how long after the start of Run a recorded time takes precedence over
// the clock; up to a tenth is added. A record that was written with a wrong clock could
// otherwise keep the node offline for years.
// TLS that starts too early only fails and is retried.
const recordTrust = time.Hour

// retryPeriod is the interval at which the clock is polled while the timer fails. Up to
// a tenth is added.
const retryPeriod = time.Minute

// source is the wall clock.
type source interface {
	now() time.Time
	// wait blocks until the clock was set since the last wait began, until the
	// clock reaches alarm (zero is never), or until ctx ends. It may return earlier.
	// A call after ctx has ended releases what earlier calls hold.
	wait(ctx context.Context, alarm time.Time) (set bool, err error)
}

// Clock reports whether the wall clock is plausible. Its methods are safe for
// concurrent use.
type Clock struct {
	log    *slog.Logger
	source source

	mu             sync.Mutex
	baseBound      time.Time // lower bound without records
	lowerBound     time.Time // lower bound, never before baseBound
	recordsExpired bool      // records no longer raise the lower bound
	waiting        bool      // the warning that TLS waits was logged
	changed        chan struct{}
}

// New returns a Clock. base is a time that is certainly past, such as the build time of the
// binary. Without Run, Ready does not notice that an implausible clock becomes plausible.
func New(base time.Time, log *slog.Logger) *Clock {
	return &Clock{log: log, source: &kernel{}, baseBound: base, lowerBound: base, changed: make(chan struct{})}
}

// RaiseLowerBound raises the lower bound to t, a time that a record proves to be past.
// The raised bound holds until the clock is set to a time after that of New, and
// at most until about an hour after the start of Run. Later calls do nothing. A clock
// that was set is more reliable than a record, which may have been written with a
// wrong clock.
func (c *Clock) RaiseLowerBound(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.recordsExpired && t.After(c.lowerBound) {
		c.lowerBound = t.Round(0)
	}
}

// Plausible reports whether the clock is not before the lower bound.
func (c *Clock) Plausible() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plausible()
}

func (c *Clock) plausible() bool { return !c.source.now().Round(0).Before(c.lowerBound) }

// Problem describes what is wrong with the clock and how to correct it. It returns
// "" if the clock is plausible.
func (c *Clock) Problem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plausible() {
		return ""
	}
	return fmt.Sprintf("the clock is behind (%s is before %s): TLS waits until it is set; set the clock, or start an NTP client",
		c.source.now().UTC().Format(time.RFC3339), c.lowerBound.UTC().Format(time.RFC3339))
}

// Ready blocks until the clock is plausible, and returns nil, or until ctx ends,
// and returns its cause.
func (c *Clock) Ready(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.plausible() {
			c.mu.Unlock()
			return nil
		}
		jumped := c.changed
		if !c.waiting {
			c.waiting = true
			c.log.Warn("clock is behind, delay TLS",
				"clock", c.source.now().UTC(), "lowerBound", c.lowerBound.UTC(), "remedy", "set the clock, or start an NTP client")
		}
		c.mu.Unlock()
		select {
		case <-jumped:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Changed returns a channel that is closed when the clock is next set or becomes
// plausible. It may also be closed without a change. Get the channel before you read
// the time. When it is closed, arm timers that depend on the wall clock again.
func (c *Clock) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Run watches for changes of the clock until ctx ends. It returns the cause of ctx.
func (c *Clock) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.expireRecords(ctx) })
	defer func() { _, _ = c.source.wait(ctx, time.Time{}) }()
	logged := false
	for ctx.Err() == nil {
		set, err := c.source.wait(ctx, c.plausibleAt())
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			if !logged {
				c.log.Warn("cannot watch the clock, poll it", "error", err, "period", retryPeriod)
				logged = true
			}
			if !wait.Pause(ctx, wait.Longer(retryPeriod)) {
				break
			}
		}
		c.check(set)
	}
	return context.Cause(ctx)
}

// expireRecords drops the recorded lower bound after recordTrust.
func (c *Clock) expireRecords(ctx context.Context) {
	if wait.Pause(ctx, wait.Longer(recordTrust)) {
		c.mu.Lock()
		c.resetLowerBound()
		c.mu.Unlock()
		c.check(false)
	}
}

// resetLowerBound drops the records for good. The caller holds c.mu.
func (c *Clock) resetLowerBound() { c.lowerBound, c.recordsExpired = c.baseBound, true }

// plausibleAt returns when the clock becomes plausible without being set, zero if it is
// plausible now.
func (c *Clock) plausibleAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plausible() {
		return time.Time{}
	}
	return c.lowerBound
}

// check handles an event: it drops the records if the clock was set, and wakes all
// waiters.
func (c *Clock) check(set bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A clock that is set to a time before baseBound is still wrong, so the records stay.
	if set && !c.source.now().Round(0).Before(c.baseBound) {
		c.resetLowerBound()
	}
	if c.waiting && c.plausible() {
		c.waiting = false
		c.log.Info("clock is set, continue TLS", "clock", c.source.now().UTC())
	}
	close(c.changed)
	c.changed = make(chan struct{})
}
