package sdnotify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/health"
)

// manager is the receiving socket of systemd, a datagram socket.
type manager struct {
	t    *testing.T
	path string
	fd   int
}

// listen creates the socket. A name that begins with @ is an abstract one.
func listen(t *testing.T, path string) *manager {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	return &manager{t, path, fd}
}

// received returns the messages since the last call.
func (m *manager) received() (all []string) {
	m.t.Helper()
	buf := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(m.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return all
		}
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, string(buf[:n]))
	}
}

func (m *manager) wants(want ...string) {
	m.t.Helper()
	if got := m.received(); !slices.Equal(got, want) {
		m.t.Errorf("systemd received %q, want %q", got, want)
	}
}

// agent is a fake of the agent that a Notifier reports.
type agent struct {
	ready, stopping chan struct{}
	check           func(context.Context) error

	mu     sync.Mutex
	status string
	slot   chan<- struct{}
	log    logBuffer
}

func newAgent() *agent {
	return &agent{ready: make(chan struct{}), stopping: make(chan struct{}), status: "No pods", check: func(context.Context) error { return nil }}
}

// start runs a Notifier. stop ends it.
func (a *agent) start(ctx context.Context, limit time.Duration) (stop func() error) {
	n := New(Config{
		Ready: func(ctx context.Context) error {
			select {
			case <-a.ready:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
		Status:   func() string { a.mu.Lock(); defer a.mu.Unlock(); return a.status },
		Notify:   func(slot chan<- struct{}) func() { a.slot = slot; return func() {} },
		Stopping: a.stopping, Checks: []health.Check{{Name: "loop", Run: func(ctx context.Context) error { return a.check(ctx) }}},
		Log: slog.New(slog.NewTextHandler(&a.log, nil)),
	})
	n.timeout = limit
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

func (a *agent) set(status string) {
	a.mu.Lock()
	a.status = status
	a.mu.Unlock()
	select {
	case a.slot <- struct{}{}:
	default:
	}
}

func environment(t *testing.T, socket, usec, pid string) {
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", usec)
	t.Setenv("WATCHDOG_PID", pid)
}

func TestLifeOfAnAgent(t *testing.T) {
	for name, path := range map[string]string{"a path": filepath.Join(t.TempDir(), "notify"), "an abstract name": fmt.Sprintf("@tinylet-test-%d", os.Getpid())} {
		t.Run(name, func(t *testing.T) {
			environment(t, path, "", "")
			m := listen(t, path)
			if !Enabled() {
				t.Error("systemd is not seen")
			}
			synctest.Test(t, func(t *testing.T) {
				a := newAgent()
				stop := a.start(t.Context(), sendTimeout)
				synctest.Wait()
				a.set("Pods: 1 pending")
				time.Sleep(time.Hour)
				m.wants() // it is not ready, and there is no watchdog
				close(a.ready)
				synctest.Wait()
				m.wants("READY=1\nSTATUS=Pods: 1 pending")
				a.set("Pods: 1 running\nREADY=0")
				a.set("Pods: 1 running\nWATCHDOG=trigger")
				time.Sleep(time.Hour)
				m.wants("STATUS=Pods: 1 running WATCHDOG=trigger")
				a.set("Pods: 1 running\nWATCHDOG=trigger")
				time.Sleep(time.Hour)
				m.wants() // it is as before
				close(a.stopping)
				synctest.Wait()
				m.wants("STOPPING=1\nSTATUS=Stopping")
				a.set("No pods")
				time.Sleep(time.Hour)
				m.wants()
				if err := stop(); !errors.Is(err, context.Canceled) || a.log.Len() > 0 {
					t.Errorf("it ended with %v and logged %s", err, &a.log)
				}
			})
		})
	}
}

// TestBusyNode has a status that never stays the same for a second.
func TestBusyNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	environment(t, path, "", "")
	m := listen(t, path)
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		stop := a.start(t.Context(), sendTimeout)
		close(a.ready)
		synctest.Wait()
		m.wants("READY=1\nSTATUS=No pods")
		for n := range 21 {
			a.set(fmt.Sprintf("Pods: %d running", n))
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if got := m.received(); len(got) < 6 || len(got) > 11 || got[len(got)-1] != "STATUS=Pods: 20 running" {
			t.Errorf("%d messages in 10 s: %q", len(got), got)
		}
		_ = stop()
	})
}

// TestStoppedEarly stops an agent that is not ready yet, or whose READY=1 could not be sent.
func TestStoppedEarly(t *testing.T) {
	for _, name := range []string{"before it is ready", "before systemd knows"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "notify")
			environment(t, path, "", "")
			synctest.Test(t, func(t *testing.T) {
				a := newAgent()
				stop := a.start(t.Context(), sendTimeout)
				if name == "before systemd knows" {
					close(a.ready)
					synctest.Wait()
				}
				m := listen(t, path)
				close(a.stopping)
				synctest.Wait()
				if name == "before it is ready" {
					close(a.ready)
				}
				time.Sleep(time.Hour)
				m.wants("STOPPING=1\nSTATUS=Stopping")
				_ = stop()
			})
		})
	}
}

// TestWatchdog has checks that fail for a while and recover, and then fail for
// good.
func TestWatchdog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	environment(t, path, "60000000", fmt.Sprint(os.Getpid()))
	m := listen(t, path)
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		var until atomic.Int64
		stuck := func(d time.Duration) { until.Store(time.Now().Add(d).UnixNano()) }
		a.check = func(ctx context.Context) error {
			if time.Now().UnixNano() > until.Load() {
				return nil
			}
			<-ctx.Done()
			return errors.New("it takes no turn")
		}
		stop := a.start(t.Context(), sendTimeout)
		close(a.ready)
		synctest.Wait()
		m.wants("READY=1\nSTATUS=No pods")
		time.Sleep(time.Minute + time.Second)
		m.wants("WATCHDOG=1", "WATCHDOG=1")
		// The third attempt is 13 s after the first.
		stuck(29*time.Second + 12*time.Second)
		time.Sleep(29*time.Second + 12*time.Second)
		m.wants()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		m.wants("WATCHDOG=1")
		if a.log.Len() > 0 {
			t.Errorf("logged %s", &a.log)
		}
		stuck(time.Hour)
		time.Sleep(time.Hour)
		synctest.Wait()
		m.wants()
		if !strings.Contains(a.log.String(), "loop: it takes no turn") {
			t.Errorf("logged %s", &a.log)
		}
		// systemd did not kill it: its word counts again when it is well.
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := m.received(); len(got) == 0 {
			t.Error("silent for ever")
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestNoWatchdog runs without a watchdog, or with that of another process.
func TestNoWatchdog(t *testing.T) {
	for name, row := range map[string]struct{ usec, pid, logged string }{
		"none":                   {"", "", ""},
		"another process'":       {"1000000", "1", ""},
		"not a number":           {"often", "", "ignore systemd watchdog"},
		"no time":                {"0", "", "ignore systemd watchdog"},
		"of no process' number":  {"1000000", "x", "ignore systemd watchdog"},
		"a PID without interval": {"", fmt.Sprint(os.Getpid()), ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "notify")
			environment(t, path, row.usec, row.pid)
			m := listen(t, path)
			synctest.Test(t, func(t *testing.T) {
				a := newAgent()
				stop := a.start(t.Context(), sendTimeout)
				close(a.ready)
				time.Sleep(time.Hour)
				m.wants("READY=1\nSTATUS=No pods")
				_ = stop()
				if got := a.log.String(); !strings.Contains(got, row.logged) || row.logged == "" && got != "" {
					t.Errorf("logged %s", got)
				}
			})
		})
	}
}

// TestSocketComesLate starts without a socket: the agent runs on, logs the failure
// once, and sends READY=1 as soon as the socket exists.
func TestSocketComesLate(t *testing.T) {
	for _, late := range []time.Duration{4 * time.Second, 75 * time.Second, time.Hour} {
		t.Run(late.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "notify")
			environment(t, path, "", "")
			synctest.Test(t, func(t *testing.T) {
				a := newAgent()
				stop := a.start(t.Context(), sendTimeout)
				close(a.ready)
				time.Sleep(late)
				m := listen(t, path)
				time.Sleep(min(late, lastRetry))
				synctest.Wait()
				m.wants("READY=1\nSTATUS=No pods")
				_ = stop()
				if got := a.log.String(); strings.Count(got, "cannot notify systemd") != 1 || !strings.Contains(got, "resumed systemd notifications") {
					t.Errorf("logged %s", got)
				}
			})
		})
	}
}

// TestSocketThatCannotBe never has a socket: the failure is logged once.
func TestSocketThatCannotBe(t *testing.T) {
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "none"), "too long": "/" + strings.Repeat("x", 200)} {
		t.Run(name, func(t *testing.T) {
			environment(t, path, "", "")
			synctest.Test(t, func(t *testing.T) {
				a := newAgent()
				stop := a.start(t.Context(), sendTimeout)
				close(a.ready)
				time.Sleep(time.Hour)
				if err := stop(); !errors.Is(err, context.Canceled) || strings.Count(a.log.String(), "\n") != 1 {
					t.Errorf("it ended with %v and logged %s", err, &a.log)
				}
			})
		})
	}
}

// TestFullSocket has a systemd that does not read. The agent does not block, and
// the message arrives once the queue has room.
func TestFullSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	environment(t, path, "", "")
	m := listen(t, path)
	fill, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fill)
	for err == nil {
		err = unix.Sendto(fill, []byte("X"), 0, &unix.SockaddrUnix{Name: path})
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	a := newAgent()
	stop := a.start(t.Context(), time.Millisecond)
	close(a.ready)
	arrived := func() bool {
		return slices.ContainsFunc(m.received(), func(s string) bool { return strings.HasPrefix(s, "READY=1") })
	}
	time.Sleep(20 * time.Millisecond) // the first attempts fail
	for !arrived() {
		time.Sleep(time.Millisecond)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// TestNotUnderSystemd runs without NOTIFY_SOCKET: nothing is sent.
func TestNotUnderSystemd(t *testing.T) {
	environment(t, "", "60000000", "")
	if Enabled() {
		t.Error("there is no systemd")
	}
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) Len() int { return len(l.String()) }
