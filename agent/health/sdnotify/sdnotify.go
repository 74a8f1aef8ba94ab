// Package sdnotify reports the agent's state to systemd (sd_notify(3)):
// readiness, one line of status when it changes, stopping, and, if the unit has
// WatchdogSec, that the agent is healthy. If NOTIFY_SOCKET is unset (Enabled), systemd did
// not start the agent, or the unit is not Type=notify.
package sdnotify

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/wait"
)

// Config holds the dependencies of a Notifier. All fields are required.
type Config struct {
	// Ready blocks until the agent is ready, and returns nil then.
	Ready func(ctx context.Context) error
	// Status returns the agent's state in one line. Notify registers a slot
	// that is filled whenever the result of Status may have changed, until
	// cancel is called.
	Status func() string
	Notify func(slot chan<- struct{}) (cancel func())
	// Stopping is closed when the agent begins to stop.
	Stopping <-chan struct{}
	// Checks must pass before WATCHDOG=1 is sent.
	Checks []health.Check
	Log    *slog.Logger
}

// Notifier sends the agent's state to systemd.
type Notifier struct {
	Config
	// sending is full while a message is being sent.
	sending chan struct{}
	timeout time.Duration // sendTimeout, shorter in tests
	failing bool          // the last message could not be sent
	status  string        // sent last
}

const (
	// sendTimeout is the timeout for one message. systemd accepts none while its
	// queue is full.
	sendTimeout = 5 * time.Second
	// checkTimeout is the longest timeout for one run of the checks; see healthy. All
	// attempts together take less than half of a WatchdogSec of one minute.
	checkTimeout = 5 * time.Second
	// statusDelay is the time from the first change of the status to the message that has
	// all changes until then.
	statusDelay = time.Second
	// firstRetry and lastRetry bound the backoff before READY=1 is sent again. By default
	// systemd gives a unit 90 s to start.
	firstRetry = time.Second
	lastRetry  = 32 * time.Second
)

// Enabled reports whether NOTIFY_SOCKET is set, so that systemd expects
// notifications.
func Enabled() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// New returns a Notifier. It sends nothing.
func New(c Config) *Notifier {
	return &Notifier{Config: c, sending: make(chan struct{}, 1), timeout: sendTimeout}
}

// Run notifies systemd until ctx ends, and returns the cause of ctx, or the
// error of Ready. Without a watchdog it sleeps while the status does not change.
func (n *Notifier) Run(ctx context.Context) error {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.Log.Warn("ignore systemd watchdog", "error", err, "remedy", "do not set WATCHDOG_USEC and WATCHDOG_PID by hand")
	}
	var watchdog <-chan time.Time
	if period > 0 {
		ticker := time.NewTicker(period / 2)
		defer ticker.Stop()
		watchdog = ticker.C
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan error, 1)
	go func() { ready <- n.Ready(ctx) }()
	changed := make(chan struct{}, 1)
	defer n.Notify(changed)()
	gathered, retry := time.NewTimer(statusDelay), time.NewTimer(firstRetry)
	gathered.Stop()
	retry.Stop()
	defer gathered.Stop()
	defer retry.Stop()
	stopping, pause, isReady, gathering := n.Stopping, firstRetry, false, false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-ready:
			if err != nil {
				return err
			}
			isReady = true
			if stopping != nil && !n.sendReady(ctx) {
				retry.Reset(pause)
			}
		case <-retry.C:
			if stopping != nil && !n.sendReady(ctx) {
				pause = min(2*pause, lastRetry)
				retry.Reset(pause)
			}
		case <-changed:
			if isReady && stopping != nil && !gathering {
				gathering = true
				gathered.Reset(statusDelay)
			}
		case <-gathered.C:
			gathering = false
			if text := n.statusLine(); text != n.status && stopping != nil && n.send(ctx, "STATUS="+text) {
				n.status = text
			}
		case <-stopping:
			stopping = nil
			n.send(ctx, daemon.SdNotifyStopping+"\nSTATUS=Stopping")
		case <-watchdog:
			if n.healthy(ctx, period) {
				n.send(ctx, daemon.SdNotifyWatchdog)
			}
		}
	}
}

// sendReady sends READY=1 and the status, and reports whether that succeeded.
func (n *Notifier) sendReady(ctx context.Context) bool {
	text := n.statusLine()
	if !n.send(ctx, daemon.SdNotifyReady+"\nSTATUS="+text) {
		return false
	}
	n.status = text
	return true
}

// statusLine returns the status without line breaks: systemd would read a second line
// as another assignment.
func (n *Notifier) statusLine() string { return strings.Join(strings.Fields(n.Status()), " ") }

// healthy reports whether the checks pass in one of three attempts, with a pause of 1 s
// and 2 s between them. A process that was stopped for a while, or that gets no CPU time,
// may miss one deadline.
func (n *Notifier) healthy(ctx context.Context, period time.Duration) bool {
	limit := min(period/12, checkTimeout)
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 0} {
		err := health.Run(ctx, limit, n.Checks)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		if pause == 0 {
			n.Log.Error("withhold systemd watchdog notification", "error", err, "watchdog", period)
			return false
		}
		if !wait.Pause(ctx, pause) {
			return false
		}
	}
	return false
}

// errQueueFull is the cause of a send that timed out: systemd does not read.
var errQueueFull = errors.New("systemd accepts no message: its queue is full")

// send sends a message and reports whether systemd accepted it. It blocks for a
// bounded time: a message that systemd does not accept in time stays in its own
// goroutine, and there is at most one such goroutine.
func (n *Notifier) send(ctx context.Context, state string) bool {
	err := n.trySend(ctx, state)
	switch {
	case err == nil && n.failing:
		n.Log.Info("resumed systemd notifications")
	case err != nil && !n.failing && ctx.Err() == nil:
		n.Log.Warn("cannot notify systemd", "error", err, "socket", os.Getenv("NOTIFY_SOCKET"),
			"remedy", "set Type=notify and NotifyAccess=main in the unit, or unset NOTIFY_SOCKET")
	}
	n.failing = err != nil
	return err == nil
}

func (n *Notifier) trySend(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.timeout, errQueueFull)
	defer cancel()
	select {
	case n.sending <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() {
		_, err := daemon.SdNotify(false, state)
		<-n.sending
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
