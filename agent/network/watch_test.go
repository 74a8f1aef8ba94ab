package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// TestWatchBreaksOff: a watch fails for a while, works, and fails again.
func TestWatchBreaksOff(t *testing.T) {
	for _, broken := range []error{errors.New("no memory"), nil} {
		synctest.Test(t, func(t *testing.T) {
			var begun, moved atomic.Int32
			var works atomic.Bool
			stop := make(chan struct{})
			l := newLab(t, func(c *Config) {
				c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
				c.OnAddressesChanged = []func(){func() { moved.Add(1) }}
				c.WatchHost = func(ctx context.Context, _ func()) error {
					begun.Add(1)
					if !works.Load() {
						return broken
					}
					select {
					case <-ctx.Done():
						return nil
					case <-stop:
						return broken
					}
				}
			})
			warned := func() int { return strings.Count(l.log.String(), "cannot watch host network") }
			l.run(t, func() {
				const hour = 60
				time.Sleep(hour * time.Minute)
				synctest.Wait()
				if n := begun.Load(); n < hour || n > 2*hour+10 || warned() != 1 || moved.Load() != 0 {
					t.Errorf("begun %d times in an hour, warned %d times, moved %d times", n, warned(), moved.Load())
				}
				works.Store(true)
				time.Sleep(wait.WatchMax + secondSyncDelay)
				synctest.Wait()
				if moved.Load() != 1 {
					t.Errorf("what was not heard of was told %d times", moved.Load())
				}
				n := begun.Load()
				time.Sleep(time.Hour)
				synctest.Wait()
				if begun.Load() != n || moved.Load() != 1 || warned() != 1 {
					t.Errorf("while it watches: begun %d times, told %d times, warned %d times", begun.Load()-n, moved.Load()-1, warned())
				}
				stop <- struct{}{}
				time.Sleep(wait.WatchFirst + secondSyncDelay)
				synctest.Wait()
				if begun.Load() != n+1 || moved.Load() != 2 || warned() != 2 {
					t.Errorf("another outage: begun %d times, told %d times, warned %d times", begun.Load()-n, moved.Load()-1, warned()-1)
				}
			})
		})
	}
}

// TestRulesChange: a change of the rules changes no address.
func TestRulesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var moved atomic.Int32
		var changed func()
		l := newLab(t, func(c *Config) {
			c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			c.OnAddressesChanged = []func(){func() { moved.Add(1) }}
			c.WatchRules = func(ctx context.Context, notify func()) error {
				changed = notify
				<-ctx.Done()
				return nil
			}
		})
		l.run(t, func() {
			changed()
			time.Sleep(minSyncInterval)
			synctest.Wait()
			if l.shelf.looks() != 2 || moved.Load() != 0 {
				t.Errorf("looked %d times, addresses changed %d times", l.shelf.looks(), moved.Load())
			}
		})
	})
}

// TestWatchOfNoProtocol: the kernel lacks the protocol.
func TestWatchOfNoProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		l := newLab(t, func(c *Config) {
			c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			c.WatchHost = func(context.Context, func()) error {
				begun.Add(1)
				return fmt.Errorf("listen: %w", unix.EPROTONOSUPPORT)
			}
		})
		l.run(t, func() { time.Sleep(time.Hour); synctest.Wait() })
		if begun.Load() != 1 || strings.Count(l.log.String(), "cannot watch host network") != 1 {
			t.Errorf("begun %d times; log %s", begun.Load(), l.log)
		}
	})
}

// TestWatchIsNotBegunAtOnce: at least a second passes between two attempts.
func TestWatchIsNotBegunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		shortest := time.Hour
		l := newLab(t, func(c *Config) {
			c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			c.WatchHost = func(context.Context, func()) error {
				if !last.IsZero() {
					shortest = min(shortest, time.Since(last))
				}
				last = time.Now()
				return errors.New("no")
			}
		})
		l.run(t, func() { time.Sleep(10 * time.Minute); synctest.Wait() })
		if shortest < time.Second || shortest > wait.WatchMax {
			t.Errorf("begun again after %v", shortest)
		}
	})
}
