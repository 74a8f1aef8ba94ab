package cgroups

import (
	"fmt"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

// jobs listens for the ends of systemd's jobs.
type jobs struct {
	mu      sync.Mutex
	waiting map[*job]struct{}
}

// job is one that is waited for. Its end may be told before the call that
// began it is answered, so that what ends is kept by its unit until then.
type job struct {
	unit string
	ends chan end
}

type end struct {
	path   dbus.ObjectPath
	result string
}

// earlier bounds the ends of a unit's other jobs that come before its own.
const earlier = 32

// DeliverSignal implements dbus.SignalHandler. On a bus anybody may send such
// a signal: who believes it looks at the files afterwards.
func (j *jobs) DeliverSignal(iface, member string, signal *dbus.Signal) {
	if iface != managerMethods || member != jobRemoved {
		return
	}
	var (
		id           uint32
		path         dbus.ObjectPath
		unit, result string
	)
	if dbus.Store(signal.Body, &id, &path, &unit, &result) != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for waiter := range j.waiting {
		if waiter.unit == unit {
			select {
			case waiter.ends <- end{path, result}:
			default:
			}
		}
	}
}

func (j *jobs) expect(unit string) *job {
	waiter := &job{unit: unit, ends: make(chan end, earlier)}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting[waiter] = struct{}{}
	return waiter
}

func (j *jobs) forget(waiter *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.waiting, waiter)
}

// jobPath reads the answer to a call that begins a job.
func jobPath(body []any) (path dbus.ObjectPath, err error) {
	if err := dbus.Store(body, &path); err != nil {
		return "", fmt.Errorf("read the job's path: %w", err)
	}
	return path, nil
}

// run calls a method of the manager that begins a job for a unit, the first of
// its arguments, and waits for the job's end. Any result but done is an error.
func (l *link) run(method, unit string, args ...any) error {
	waiter := l.jobs.expect(unit)
	defer l.jobs.forget(waiter)
	body, err := l.call(method, append([]any{unit}, args...)...)
	if err != nil {
		return err
	}
	path, err := jobPath(body)
	if err != nil {
		return err
	}
	timer := time.NewTimer(l.of.jobTime)
	defer timer.Stop()
	for {
		select {
		case e := <-waiter.ends:
			if e.path != path {
				continue
			}
			if e.result != "done" {
				return fmt.Errorf("the job of %s has ended as %q; `systemctl status %s` may tell why", method, e.result, unit)
			}
			return nil
		case <-timer.C:
			return fmt.Errorf("%w: the job of %s has not ended within %v; `systemctl list-jobs` shows what waits", ErrUnanswered, method, l.of.jobTime)
		case <-l.conn.Context().Done():
			return errBroken
		case <-l.of.closed:
			return errClosed
		}
	}
}
