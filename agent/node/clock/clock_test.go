package clock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	base    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	epoch   = time.Unix(0, 0)
	errDone = errors.New("errDone")
)

// manual is a wall clock that a test sets. It advances with virtual time.
type manual struct {
	mu     sync.Mutex
	offset time.Duration
	broken bool
	pulse  chan struct{}
}

func (m *manual) set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset = time.Until(t)
	if !m.broken {
		m.pulse <- struct{}{}
	}
}

func (m *manual) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.offset)
}

func (m *manual) wait(ctx context.Context, alarm time.Time) (bool, error) {
	if m.broken {
		return false, errors.New("no timers")
	}
	var ring <-chan time.Time
	if !alarm.IsZero() {
		timer := time.NewTimer(alarm.Sub(m.now()))
		defer timer.Stop()
		ring = timer.C
	}
	select {
	case <-m.pulse:
		return true, nil
	case <-ring:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// bench is a running Clock on a manual one.
type bench struct {
	*Clock
	wall *manual
	log  bytes.Buffer
}

func (b *bench) start(t *testing.T, at time.Time, broken bool) {
	t.Helper()
	b.wall = &manual{offset: time.Until(at), broken: broken, pulse: make(chan struct{}, 8)}
	b.Clock = New(base, slog.New(slog.NewTextHandler(&b.log, nil)))
	b.source = b.wall
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel(errDone)
		if err := <-ended; !errors.Is(err, errDone) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// waiters calls Ready n times concurrently, and returns a function that counts the
// calls that have returned.
func (b *bench) waiters(t *testing.T, n int) func() int {
	t.Helper()
	var mu sync.Mutex
	through := 0
	for range n {
		go func() {
			if err := b.Ready(t.Context()); err == nil {
				mu.Lock()
				through++
				mu.Unlock()
			}
		}()
	}
	return func() int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return through
	}
}

func TestWaitsUntilTheClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.start(t, epoch, false)
		through := b.waiters(t, 3)
		if n := through(); n != 0 || b.Plausible() {
			t.Fatalf("%d are through in 1970", n)
		}
		jumped := b.Changed()
		b.wall.set(epoch.AddDate(10, 0, 0))
		if n := through(); n != 0 {
			t.Fatalf("%d are through in 1980", n)
		}
		if got, want := b.Problem(), "1980-"; !strings.Contains(got, want) || !strings.Contains(got, "start an NTP client") {
			t.Errorf("problem %q", got)
		}
		<-jumped
		b.wall.set(base.AddDate(0, 1, 0))
		if n := through(); n != 3 || !b.Plausible() || b.Problem() != "" {
			t.Fatalf("%d of 3 are through, problem %q", n, b.Problem())
		}
		for _, line := range []string{"clock is behind, delay TLS", "continue TLS"} {
			if n := strings.Count(b.log.String(), line); n != 1 {
				t.Errorf("%q is logged %d times:\n%s", line, n, b.log.String())
			}
		}
	})
}

func TestTimeItselfReachesTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.start(t, base.Add(-20*time.Minute), false)
		begin := time.Now()
		if err := b.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d != 20*time.Minute {
			t.Errorf("waited %v", d)
		}
	})
}

func TestRecords(t *testing.T) {
	record := base.AddDate(1, 0, 0)
	for _, row := range []struct {
		name string
		do   func(*bench)
		want bool
	}{
		{"a record is believed", func(*bench) {}, false},
		{"an hour long", func(*bench) { time.Sleep(50 * time.Minute) }, false},
		{"not for ever", func(*bench) { time.Sleep(2 * time.Hour) }, true},
		{"not after the clock was set", func(b *bench) { b.wall.set(base.AddDate(0, 6, 0)) }, true},
		{"but after it was set to what cannot be", func(b *bench) {
			b.wall.set(epoch)
			synctest.Wait()
			b.wall.mu.Lock()
			b.wall.offset = time.Until(base.AddDate(0, 1, 0))
			b.wall.mu.Unlock()
		}, false},
		{"one that comes too late is not", func(b *bench) {
			b.wall.set(base.AddDate(0, 6, 0))
			synctest.Wait()
			b.RaiseLowerBound(record)
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b bench
				b.start(t, base.AddDate(0, 1, 0), false)
				b.RaiseLowerBound(record)
				b.RaiseLowerBound(base) // lowers nothing
				row.do(&b)
				if through := b.waiters(t, 1); (through() == 1) != row.want || b.Plausible() != row.want {
					t.Errorf("plausible is %v", b.Plausible())
				}
			})
		})
	}
}

func TestKernelThatCannotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.start(t, epoch, true)
		through := b.waiters(t, 1)
		if through() != 0 {
			t.Fatal("through in 1970")
		}
		b.wall.set(base)
		time.Sleep(2 * time.Minute)
		if through() != 1 {
			t.Error("nobody read the clock")
		}
		if n := strings.Count(b.log.String(), "cannot watch the clock"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestReadyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.start(t, epoch, false)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errDone)
		if err := b.Ready(ctx); !errors.Is(err, errDone) {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestKernel arms the kernel's timer; it does not set the clock.
func TestKernel(t *testing.T) {
	k := &kernel{}
	ctx, cancel := context.WithCancelCause(t.Context())
	if set, err := k.wait(ctx, time.Time{}); set || err != nil {
		t.Fatalf("first wait: %v, %v", set, err)
	}
	if set, err := k.wait(ctx, k.now().Add(10*time.Millisecond)); set || err != nil {
		t.Fatalf("alarm: %v, %v", set, err)
	}
	if set, err := k.wait(ctx, epoch); set || err != nil {
		t.Fatalf("alarm that is past: %v, %v", set, err)
	}
	ended := make(chan error)
	go func() {
		_, err := k.wait(ctx, time.Time{})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("the wait for nothing ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	cancel(errDone)
	if err := <-ended; !errors.Is(err, errDone) {
		t.Errorf("ended with %v", err)
	}
	if k.file != nil {
		t.Error("the timer is still open")
	}
}

// TestRunOnTheKernel lets the kernel's clock advance to the lower bound.
func TestRunOnTheKernel(t *testing.T) {
	c := New(time.Now().Add(50*time.Millisecond), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	if c.Plausible() {
		t.Error("plausible before its floor")
	}
	if err := c.Ready(t.Context()); err != nil || !c.Plausible() {
		t.Errorf("not ready: %v", err)
	}
	cancel(errDone)
	if err := <-ended; !errors.Is(err, errDone) {
		t.Errorf("Run ended with %v", err)
	}
}
