// Package clock guards against a wall clock that may start in 1970: a board
// without a battery knows the time only when somebody has set its clock.
//
// The clock is plausible when it is not before a floor, which is when the
// binary was built or a later record on the disk. TLS waits for that, because
// every certificate is from the future to a clock that is behind, and one that
// has expired may look valid. Nothing is polled: a timerfd(2) with
// TFD_TIMER_CANCEL_ON_SET tells when the clock is set.
package clock

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// recordTrust is how long a record is believed more than the clock. A record
// that a wrong clock once wrote would else keep the node away for years; TLS
// that is tried too early only fails and is tried again.
const recordTrust = time.Hour

// retryPeriod is how often the clock is read where the kernel cannot tell that
// it was set.
const retryPeriod = time.Minute

// Config is what a Clock needs.
type Config struct {
	// Floor is a time that is surely past, such as when the binary was built.
	Floor time.Time
	Log   *slog.Logger
}

// source is the wall clock.
type source interface {
	// now is the wall clock's time.
	now() time.Time
	// wait blocks until the clock was set since the last wait began, or has
	// come to alarm (zero is never), or ctx ends. A wait after ctx has ended
	// lets go of what earlier ones hold.
	wait(ctx context.Context, alarm time.Time) (set bool, err error)
}

// Clock says whether the wall clock can be believed. Its methods may be called
// at once.
type Clock struct {
	log    *slog.Logger
	source source

	mu      sync.Mutex
	base    time.Time // the floor that stays
	floor   time.Time // not before base
	settled bool      // records are no longer believed more than the clock
	waiting bool      // somebody was told that TLS waits
	jumped  chan struct{}
}

// New makes a Clock; without Run, waits do not end.
func New(c Config) *Clock { return newClock(c, &kernel{}) }

func newClock(c Config, s source) *Clock {
	return &Clock{log: c.Log, source: s, base: c.Floor, floor: c.Floor, jumped: make(chan struct{})}
}

// Raise lifts the floor to a time that a record proves to be past. It counts
// for an hour at most, and only until the clock is set: whoever sets it knows
// more than a record, which a wrong clock may have written.
func (c *Clock) Raise(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled && t.After(c.floor) {
		c.floor = t.Round(0)
	}
}

// Plausible says that the clock is not before the floor.
func (c *Clock) Plausible() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plausible()
}

func (c *Clock) plausible() bool { return !c.source.now().Round(0).Before(c.floor) }

// Problem says what somebody has to do about the clock, "" for nothing.
func (c *Clock) Problem() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plausible() {
		return ""
	}
	return fmt.Sprintf("the clock is behind (%s is before %s): TLS waits until it is set; set it, or start an NTP client",
		c.source.now().UTC().Format(time.RFC3339), c.floor.UTC().Format(time.RFC3339))
}

// Ready blocks until the clock is plausible or ctx ends, and then returns its
// cause.
func (c *Clock) Ready(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.plausible() {
			c.mu.Unlock()
			return nil
		}
		jumped := c.jumped
		if !c.waiting {
			c.waiting = true
			c.log.Warn("the clock is behind: TLS waits until it is set; set it, or start an NTP client",
				"clock", c.source.now().UTC(), "before", c.floor.UTC())
		}
		c.mu.Unlock()
		select {
		case <-jumped:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Jumped answers a channel that is closed when the clock is next set or
// becomes plausible. Ask for it before reading the time: what is armed by the
// wall clock is then to be armed anew when it closes.
func (c *Clock) Jumped() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jumped
}

// Run notes when the clock is set, until ctx ends.
func (c *Clock) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.settle(ctx) })
	defer func() { _, _ = c.source.wait(ctx, time.Time{}) }()
	told := false
	for ctx.Err() == nil {
		set, err := c.source.wait(ctx, c.alarm())
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			if !told {
				c.log.Warn("the kernel cannot tell when the clock is set: it is read every minute", "error", err)
				told = true
			}
			if !sleep(ctx, retryPeriod) {
				break
			}
		}
		c.look(set)
	}
	return context.Cause(ctx)
}

// settle ends the trust in records when they had their time.
func (c *Clock) settle(ctx context.Context) {
	if sleep(ctx, recordTrust) {
		c.mu.Lock()
		c.forget()
		c.mu.Unlock()
		c.look(false)
	}
}

// forget takes records for what they are; the lock is held.
func (c *Clock) forget() { c.floor, c.settled = c.base, true }

// alarm is when the clock becomes plausible by itself, zero if it is.
func (c *Clock) alarm() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plausible() {
		return time.Time{}
	}
	return c.floor
}

// look reads the clock after something happened, and wakes who waits.
func (c *Clock) look(set bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A clock that is set to before the base is as wrong as before, and says
	// nothing about the records.
	if set && !c.source.now().Round(0).Before(c.base) {
		c.forget()
	}
	if c.waiting && c.plausible() {
		c.waiting = false
		c.log.Info("the clock is set: TLS goes on", "clock", c.source.now().UTC())
	}
	close(c.jumped)
	c.jumped = make(chan struct{})
}

// sleep waits for about d, and says that ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d + rand.N(d/10))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
