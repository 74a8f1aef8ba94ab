package shutdown

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// fakeLogind is a logind and its bus.
type fakeLogind struct {
	mu        sync.Mutex
	away      bool // the bus does not exist
	delay     time.Duration
	reloads   []time.Duration // what the next reloads make of the delay
	reloaded  int
	reloadErr error
	preparing bool
	locks     int // held
	taken     int // ever
	dials     int
	conns     map[*fakeConn]struct{}
}

// fakeConn is one connection to it.
type fakeConn struct {
	*fakeLogind
	trigger chan struct{}
	lost    chan struct{}
}

type fakeLock struct {
	of   *fakeLogind
	once sync.Once
}

var errRefused = errors.New("refused")

func (f *fakeLogind) dial(context.Context) (login, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials++
	if f.away {
		return nil, errRefused
	}
	c := &fakeConn{fakeLogind: f, trigger: make(chan struct{}, 1), lost: make(chan struct{})}
	if f.conns == nil {
		f.conns = map[*fakeConn]struct{}{}
	}
	f.conns[c] = struct{}{}
	return c, nil
}

func (c *fakeConn) Delay(context.Context) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delay, nil
}

func (c *fakeConn) Reload(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fakeLogind.reloaded++
	if c.reloadErr == nil && len(c.reloads) > 0 {
		delay := c.reloads[0]
		c.reloads = c.reloads[1:]
		time.AfterFunc(250*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.delay = delay
		})
	}
	return c.reloadErr
}

func (c *fakeConn) Inhibit(context.Context) (io.Closer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.preparing {
		return nil, errRefused
	}
	c.locks++
	c.taken++
	return &fakeLock{of: c.fakeLogind}, nil
}

func (l *fakeLock) Close() error {
	err := errors.New("closed twice")
	l.once.Do(func() {
		l.of.mu.Lock()
		l.of.locks--
		l.of.mu.Unlock()
		err = nil
	})
	return err
}

func (c *fakeConn) Preparing(context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.preparing, nil
}

func (c *fakeConn) Signals() <-chan struct{} { return c.trigger }
func (c *fakeConn) Lost() <-chan struct{}    { return c.lost }
func (c *fakeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, c)
	return nil
}

// prepare sets whether the machine goes down, and signals all connections.
func (f *fakeLogind) prepare(down bool) {
	f.mu.Lock()
	f.preparing = down
	f.mu.Unlock()
	f.signal()
}

func (f *fakeLogind) signal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		wait.Notify(c.trigger)
	}
}

// cut ends the bus, and all connections.
func (f *fakeLogind) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
	for c := range f.conns {
		close(c.lost)
		delete(f.conns, c)
	}
}

func (f *fakeLogind) comeBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = false
}

func (f *fakeLogind) wantLocks(t *testing.T, held, taken int) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks != held || f.taken != taken {
		t.Errorf("%d locks are held, %d were taken; want %d, %d", f.locks, f.taken, held, taken)
	}
}

// withLogind runs a test on a board with systemd.
func withLogind(t *testing.T, f *fakeLogind, test func(ctx context.Context, b *board, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBoard(t, threePeriods, &log)
		b.dial = f.dial
		if err := os.MkdirAll(filepath.Join(b.cfg.Root, "run/systemd/system"), 0o755); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- b.Run(ctx) }()
		synctest.Wait()
		test(ctx, b, &log)
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Run answered %v", err)
		}
		if f.locks != 0 {
			t.Errorf("%d locks are held after Run", f.locks)
		}
	})
}

func TestLogindWaitsUntilThePodsHaveEnded(t *testing.T) {
	f := &fakeLogind{delay: time.Minute}
	withLogind(t, f, func(_ context.Context, b *board, _ *bytes.Buffer) {
		b.add(newPod("web", 0, 30), 3*time.Second)
		b.add(newPod("db", 100, 30), 4*time.Second)
		f.wantLocks(t, 1, 1)
		f.prepare(true)
		synctest.Wait()
		b.wantInProgress(true, 1)
		time.Sleep(7*time.Second - time.Millisecond)
		f.wantLocks(t, 1, 1)
		time.Sleep(time.Millisecond)
		f.wantLocks(t, 0, 1)
		b.wantCalls("at 0s: web within 10s", "at 3s: db within 20s")
		f.signal() // once more
		synctest.Wait()
		b.wantInProgress(true, 1)
		f.prepare(false) // it did not come to it
		synctest.Wait()
		b.wantInProgress(false, 2)
		f.wantLocks(t, 1, 2)
	})
}

func TestLogindTakesAShutdownBack(t *testing.T) {
	f := &fakeLogind{delay: time.Minute}
	withLogind(t, f, func(_ context.Context, b *board, _ *bytes.Buffer) {
		b.add(newPod("web", 0, 30), 3*time.Second)
		b.add(newPod("db", 100, 30), 4*time.Second)
		f.prepare(true)
		time.Sleep(time.Second)
		f.prepare(false)
		f.wantLocks(t, 1, 2)
		time.Sleep(time.Minute)
		b.wantCalls("at 0s: web within 10s")
		b.wantInProgress(false, 2)
	})
}

func TestSignalsAreNotTakenAtTheirWord(t *testing.T) {
	f := &fakeLogind{delay: time.Minute}
	withLogind(t, f, func(_ context.Context, b *board, _ *bytes.Buffer) {
		b.add(newPod("web", 0, 30), 3*time.Second)
		f.signal()
		synctest.Wait()
		b.wantInProgress(false, 0)
		b.wantCalls()
	})
}

func TestEachWhoAskedHasToTakeItBack(t *testing.T) {
	f := &fakeLogind{delay: time.Minute}
	withLogind(t, f, func(ctx context.Context, b *board, _ *bytes.Buffer) {
		b.add(newPod("web", 0, 30), time.Second)
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		f.wantLocks(t, 0, 1) // nothing is left to wait for
		f.signal()
		synctest.Wait()
		b.wantInProgress(true, 1) // logind never asked
		f.prepare(true)
		synctest.Wait()
		b.Cancel()
		synctest.Wait()
		b.wantInProgress(true, 1) // logind does
		f.prepare(false)
		synctest.Wait()
		b.wantInProgress(false, 2)
		f.wantLocks(t, 1, 2)
	})
}

func TestBusIsLostDuringAShutdown(t *testing.T) {
	f := &fakeLogind{delay: time.Minute}
	withLogind(t, f, func(_ context.Context, b *board, _ *bytes.Buffer) {
		b.add(newPod("web", 0, 30), 8*time.Second)
		f.prepare(true)
		synctest.Wait()
		f.cut()
		time.Sleep(5 * time.Second)
		f.wantLocks(t, 1, 1) // the lock is good without the bus
		f.comeBack()
		time.Sleep(3 * time.Second)
		f.wantLocks(t, 0, 1)
		b.wantCalls("at 0s: web within 10s")
		b.wantInProgress(true, 1)
	})
}

func TestWhatWasMissedWithoutTheBusIsSeen(t *testing.T) {
	f := &fakeLogind{delay: time.Minute}
	withLogind(t, f, func(_ context.Context, b *board, _ *bytes.Buffer) {
		b.add(newPod("web", 0, 30), never)
		f.cut()
		f.prepare(true)
		time.Sleep(time.Minute)
		b.wantInProgress(false, 0)
		f.comeBack()
		time.Sleep(time.Minute)
		b.wantInProgress(true, 1)
		f.cut()
		f.prepare(false)
		time.Sleep(time.Minute)
		f.comeBack()
		time.Sleep(time.Minute)
		b.wantInProgress(false, 2)
		f.wantLocks(t, 1, 2)
	})
}

func TestNoLockIsTakenWhileTheNodeGoesDown(t *testing.T) {
	f := &fakeLogind{delay: time.Minute}
	withLogind(t, f, func(ctx context.Context, b *board, _ *bytes.Buffer) {
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		f.cut()
		f.comeBack()
		time.Sleep(time.Minute)
		f.wantLocks(t, 0, 1)
		b.wantInProgress(true, 1)
	})
}

func TestLockThatComesTooLateIsGivenBack(t *testing.T) {
	f := &fakeLogind{locks: 3}
	b := newBoard(t, threePeriods, io.Discard)
	first, second, third := &fakeLock{of: f}, &fakeLock{of: f}, &fakeLock{of: f}
	b.setLock(first)
	r := b.begin(fromLogind)
	b.setLock(second)
	if f.locks != 2 || b.lock != io.Closer(second) {
		t.Errorf("%d locks are held", f.locks)
	}
	b.Manager.ended(r)
	b.setLock(third)
	if f.locks != 0 || b.lock != nil {
		t.Errorf("%d locks are held after the end", f.locks)
	}
}

func TestShutdownThatWasTakenBackInTheLastMomentKeepsTheLock(t *testing.T) {
	f := &fakeLogind{locks: 1}
	b := newBoard(t, threePeriods, io.Discard)
	b.setLock(&fakeLock{of: f})
	r := b.begin(fromLogind)
	b.cancel(fromLogind)
	b.Manager.ended(r)
	if f.locks != 1 || b.lock == nil || !errors.Is(r.err, ErrCancelled) {
		t.Errorf("%d locks are held, the shutdown ended with %v", f.locks, r.err)
	}
}

func TestLogindThatIsNotThereIsTriedSeldomAndToldOfOnce(t *testing.T) {
	f := &fakeLogind{delay: time.Minute, away: true}
	withLogind(t, f, func(_ context.Context, _ *board, log *bytes.Buffer) {
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if f.dials < 24*12 || f.dials > 24*24+20 {
			t.Errorf("tried %d times in a day", f.dials)
		}
		f.comeBack()
		time.Sleep(longestRetry)
		f.wantLocks(t, 1, 1)
		for _, text := range []string{"cannot watch logind", "watch logind for shutdowns again"} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%q was logged %d times:\n%s", text, n, log)
			}
		}
		f.cut()
		f.comeBack()
		time.Sleep(2 * time.Second) // the waits are short again
		f.wantLocks(t, 1, 2)
	})
}

func TestDelayIsRaised(t *testing.T) {
	f := &fakeLogind{delay: 5 * time.Second, reloads: []time.Duration{35 * time.Second}}
	withLogind(t, f, func(_ context.Context, b *board, log *bytes.Buffer) {
		time.Sleep(time.Second)
		f.wantLocks(t, 1, 1)
		text, err := os.ReadFile(filepath.Join(b.cfg.Root, "etc/systemd/logind.conf.d/99-kubelet.conf"))
		if err != nil || !strings.HasSuffix(string(text), "\n[Login]\nInhibitDelayMaxSec=35\n") {
			t.Errorf("drop-in %q, %v", text, err)
		}
		if f.reloaded != 1 || log.Len() != 0 && strings.Contains(log.String(), "WARN") {
			t.Errorf("reloaded %d times, log:\n%s", f.reloaded, log)
		}
	})
}

func TestLockIsTakenWhereTheDelayCannotBeRaised(t *testing.T) {
	for name, f := range map[string]*fakeLogind{
		"ignored": {delay: 5 * time.Second},
		"refused": {delay: 5 * time.Second, reloadErr: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			withLogind(t, f, func(_ context.Context, _ *board, log *bytes.Buffer) {
				for i := range 3 {
					time.Sleep(time.Minute)
					f.wantLocks(t, 1, i+1)
					f.cut()
					f.comeBack()
				}
				synctest.Wait()
				if n := strings.Count(log.String(), "logind shutdown delay is too short"); n != 1 {
					t.Errorf("told %d times:\n%s", n, log)
				}
			})
		})
	}
}

func TestOverride(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "a/b"), filepath.Join(t.TempDir(), "c")
	folders := []string{first, second}
	path := filepath.Join(first, logindFile)
	if err := writeDropIn(folders, 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "InhibitDelayMaxSec=2\n") {
		t.Errorf("drop-in %q, %v", text, err)
	}
	if before.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", before.Mode())
	}
	if err := writeDropIn(folders, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same text was written again: %v", err)
	}
	if _, err := os.Stat(second); !os.IsNotExist(err) {
		t.Errorf("the second folder was used too: %v", err)
	}
}

func TestOverrideWhereTheFirstFolderCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad, good := filepath.Join(file, "under"), filepath.Join(t.TempDir(), "good")
	if err := writeDropIn([]string{bad, good}, time.Minute); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(good)
	if err != nil || len(entries) != 1 || entries[0].Name() != logindFile {
		t.Errorf("folder holds %v, %v", entries, err)
	}
	if err := writeDropIn([]string{bad, bad}, time.Minute); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("got %v", err)
	}
}
