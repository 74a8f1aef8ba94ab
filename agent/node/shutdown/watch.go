package shutdown

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// longestRetry bounds the backoff while the bus or logind cannot be reached. A machine
// may have systemd without them.
const longestRetry = 5 * time.Minute

var errLost = errors.New("lost connection to the system bus")

// login is a connection to logind. org.freedesktop.login1(5) documents the calls
// and properties. Every call returns when ctx ends.
type login interface {
	// Delay returns InhibitDelayMaxUSec.
	Delay(ctx context.Context) (time.Duration, error)
	// Reload makes logind read its configuration again, some time later.
	Reload(ctx context.Context) error
	// Inhibit takes the lock that delays a shutdown until it is closed.
	Inhibit(ctx context.Context) (io.Closer, error)
	// Preparing returns PreparingForShutdown.
	Preparing(ctx context.Context) (bool, error)
	// Signals receives after one or more signals PrepareForShutdown.
	Signals() <-chan struct{}
	// Lost is closed when the connection has ended.
	Lost() <-chan struct{}
	// Close ends the connection. Locks stay.
	Close() error
}

// watch watches logind until ctx ends, and reconnects when the connection ends.
func (m *Manager) watch(ctx context.Context) {
	backoff := wait.Backoff{Max: longestRetry}
	away := false
	for {
		err := m.session(ctx, func() {
			backoff.Reset()
			if away {
				m.cfg.Log.Info("watch logind for shutdowns again")
			}
			away = false
		})
		if ctx.Err() != nil {
			return
		}
		if !away {
			m.cfg.Log.Warn("cannot watch logind for shutdowns, retry", "error", err)
			away = true
		}
		if !wait.Pause(ctx, backoff.Next()) {
			return
		}
	}
}

// session watches logind over one connection, and calls up once it holds the lock.
// It returns an error when the connection fails or ctx ends.
func (m *Manager) session(ctx context.Context, up func()) error {
	l, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // an inhibitor lock survives it
	if err := m.raiseDelay(ctx, l); err != nil {
		return err
	}
	if err := m.readPreparing(ctx, l); err != nil {
		return err
	}
	select {
	case <-m.relock: // done now
	default:
	}
	if err := m.inhibit(ctx, l); err != nil {
		return err
	}
	// A shutdown may have begun before the lock was taken.
	if err := m.readPreparing(ctx, l); err != nil {
		return err
	}
	up()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.Lost():
			return errLost
		case <-l.Signals():
			err = m.readPreparing(ctx, l)
		case <-m.relock:
			err = m.inhibit(ctx, l)
		}
		if err != nil {
			return err
		}
	}
}

// readPreparing reads whether the machine goes down, and begins or cancels a shutdown
// accordingly.
func (m *Manager) readPreparing(ctx context.Context, l login) error {
	preparing, err := l.Preparing(ctx)
	if err != nil {
		return err
	}
	if preparing {
		m.begin(fromLogind)
	} else {
		m.cancel(fromLogind)
	}
	return nil
}

// inhibit takes a lock unless a shutdown is in progress: logind grants none then,
// and a lock that is held survives its connection.
func (m *Manager) inhibit(ctx context.Context, l login) error {
	if m.InProgress() {
		return nil
	}
	lock, err := l.Inhibit(ctx)
	if err != nil {
		return err
	}
	m.setLock(lock)
	return nil
}

// Number of polls, and the first wait, until logind has read its configuration.
// Each wait is twice as long as the one before. logind sends no signal for it.
const (
	reloadPolls = 5
	reloadFirst = 100 * time.Millisecond
)

// raiseDelay raises logind's delay to the time that pods may take. If that is not
// possible, it logs a warning once, and the pods get the delay that logind has.
func (m *Manager) raiseDelay(ctx context.Context, l login) error {
	minDelay := Total(m.cfg.Periods)
	delay, err := l.Delay(ctx)
	if err != nil || delay >= minDelay {
		return err
	}
	err = writeDropIn([]string{filepath.Join(m.cfg.Root, logindFolder), filepath.Join(m.cfg.Root, logindRunFolder)}, minDelay)
	if err == nil {
		err = l.Reload(ctx)
	}
	if err == nil {
		if delay, err = m.reloaded(ctx, l, minDelay); err != nil {
			return err
		}
	}
	if delay < minDelay && !m.delayLogged {
		m.delayLogged = true
		m.cfg.Log.Warn("logind shutdown delay is too short", "delay", delay.String(), "required", minDelay.String(), "error", err)
	}
	return nil
}

// reloaded polls logind's delay until it is at least minDelay, or until the polls are
// used up. It returns the delay.
func (m *Manager) reloaded(ctx context.Context, l login, minDelay time.Duration) (delay time.Duration, err error) {
	pause := reloadFirst
	for range reloadPolls {
		if !wait.Pause(ctx, pause) {
			return 0, context.Cause(ctx)
		}
		if delay, err = l.Delay(ctx); err != nil || delay >= minDelay {
			return delay, err
		}
		pause *= 2
	}
	return delay, nil
}
