package shutdown

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// longestRetry bounds the wait for a bus or a logind that is not there: a
// machine may have systemd without them.
const longestRetry = 5 * time.Minute

var errLost = errors.New("connection to the system bus was lost")

// login is a connection to logind; org.freedesktop.login1(5) tells what its
// parts mean. Every call ends with ctx.
type login interface {
	// Delay is InhibitDelayMaxUSec.
	Delay(ctx context.Context) (time.Duration, error)
	// Reload has logind read its configuration again, some time later.
	Reload(ctx context.Context) error
	// Inhibit takes the lock that delays a shutdown until it is closed.
	Inhibit(ctx context.Context) (io.Closer, error)
	// Preparing is PreparingForShutdown.
	Preparing(ctx context.Context) (bool, error)
	// Signals receives after one or more signals PrepareForShutdown.
	Signals() <-chan struct{}
	// Lost is closed when the connection has ended.
	Lost() <-chan struct{}
	// Close ends the connection. Locks stay.
	Close() error
}

// watch follows logind until ctx ends, over as many connections as it takes.
func (m *Manager) watch(ctx context.Context) {
	backoff := apiclient.Backoff{Max: longestRetry}
	away := false
	for {
		err := m.session(ctx, func() {
			backoff.Reset()
			if away {
				m.cfg.Log.Info("logind is watched for shutdowns again")
			}
			away = false
		})
		if ctx.Err() != nil {
			return
		}
		if !away {
			m.cfg.Log.Warn("logind is not watched for shutdowns, will be tried again", "error", err)
			away = true
		}
		timer := time.NewTimer(backoff.Next())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// session follows logind over one connection, and calls up once it does. It
// ends with an error, or with ctx.
func (m *Manager) session(ctx context.Context, up func()) error {
	l, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // nothing is lost with it
	if err := m.raise(ctx, l); err != nil {
		return err
	}
	if err := m.ask(ctx, l); err != nil {
		return err
	}
	select {
	case <-m.relock: // done now
	default:
	}
	if err := m.inhibit(ctx, l); err != nil {
		return err
	}
	// A shutdown may have begun before the lock was there.
	if err := m.ask(ctx, l); err != nil {
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
			err = m.ask(ctx, l)
		case <-m.relock:
			err = m.inhibit(ctx, l)
		}
		if err != nil {
			return err
		}
	}
}

// ask has logind say whether the machine goes down.
func (m *Manager) ask(ctx context.Context, l login) error {
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

// inhibit takes a lock unless the node goes down: logind gives none then, and
// one that is held stays good without its connection.
func (m *Manager) inhibit(ctx context.Context, l login) error {
	if m.InProgress() {
		return nil
	}
	lock, err := l.Inhibit(ctx)
	if err != nil {
		return err
	}
	m.hold(lock)
	return nil
}

// How often, and after which first wait, logind is looked at until it has
// read its configuration: twice as long each time. No signal tells of it.
const (
	reloadLooks = 5
	reloadFirst = 100 * time.Millisecond
)

// raise has logind wait for as long as the pods may take. Where it cannot be
// made to, the pods get what there is; that is said once.
func (m *Manager) raise(ctx context.Context, l login) error {
	wanted := Total(m.cfg.Periods)
	delay, err := l.Delay(ctx)
	if err != nil || delay >= wanted {
		return err
	}
	err = override([]string{filepath.Join(m.cfg.Root, logindFolder), filepath.Join(m.cfg.Root, logindRunFolder)}, wanted)
	if err == nil {
		err = l.Reload(ctx)
	}
	if err == nil {
		if delay, err = m.reloaded(ctx, l, wanted); err != nil {
			return err
		}
	}
	if delay < wanted && !m.short {
		m.short = true
		m.cfg.Log.Warn("logind will not wait as long as pods may take to end", "waits", delay.String(), "wanted", wanted.String(), "error", err)
	}
	return nil
}

// reloaded waits until logind has read that it is to wait so long, or it has
// taken too much time, and answers for how long it does.
func (m *Manager) reloaded(ctx context.Context, l login, wanted time.Duration) (delay time.Duration, err error) {
	wait := reloadFirst
	for range reloadLooks {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, context.Cause(ctx)
		case <-timer.C:
		}
		if delay, err = l.Delay(ctx); err != nil || delay >= wanted {
			return delay, err
		}
		wait *= 2
	}
	return delay, nil
}
