package probe

import (
	"context"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// Reasons of events, from pkg/kubelet/events/event.go.
const (
	reasonUnhealthy = "Unhealthy"
	reasonWarning   = "ProbeWarning"
)

// attempts is the maximum number of attempts in one run while the probe cannot be run.
const attempts = 3

// saveAfter is the time for which changes are collected and then saved together. A
// change that is reported through Config.ResultChanged is saved at once.
const saveAfter = time.Second

// Run runs the probes until ctx ends. It then waits for the runs in flight, saves
// the state and returns the cause of ctx. Only one Run may be active at a time.
func (m *Manager) Run(ctx context.Context) error {
	var flights sync.WaitGroup
	defer m.persist()
	defer flights.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var unsaved <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		case <-m.wake:
		case <-m.unsaved:
			if unsaved == nil {
				unsaved = time.After(saveAfter)
			}
			continue
		case <-unsaved:
			unsaved = nil
			m.persist()
			continue
		}
		if wait, more := m.startDue(ctx, &flights); more {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// startDue starts the checks that are due. It returns the time until the next one,
// and whether there is one.
func (m *Manager) startDue(ctx context.Context, flights *sync.WaitGroup) (wait time.Duration, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for c := m.queue.top(); c != nil; c = m.queue.top() {
		if wait := c.due.Sub(now); wait > 0 {
			m.armed = c.due
			return wait, true
		}
		m.queue.remove(c)
		var limited context.Context
		limited, c.cancel = context.WithCancel(ctx)
		f := checkRun{check: c, started: now, pod: c.target.pod.pod, spec: c.spec, hostNetwork: c.target.pod.hostNetwork}
		f.target = handler.Target{ContainerID: c.target.id, Container: c.target.c, IP: c.target.pod.ip}
		flights.Go(func() { m.runCheck(limited, &f) })
	}
	m.armed = time.Time{}
	return 0, false
}

// enqueue queues a check, and wakes Run if the check is due before the timer. The caller
// holds the lock.
func (m *Manager) enqueue(c *check) {
	m.queue.add(c)
	if !m.armed.IsZero() && !c.due.Before(m.armed) {
		return
	}
	m.armed = c.due
	m.wake.Set()
}

// checkRun is one run of a check in flight. It has copies of the pod's fields that
// it needs, because it runs without the manager's lock.
type checkRun struct {
	check       *check
	started     time.Time
	pod         *v1.Pod
	spec        *v1.Probe
	hostNetwork bool
	target      handler.Target
}

// runCheck runs a check once and handles its result.
func (m *Manager) runCheck(ctx context.Context, f *checkRun) {
	if f.hostNetwork && m.HostIPs != nil {
		f.target.IP = ""
		if ips := m.HostIPs(); len(ips) > 0 {
			f.target.IP = ips[0]
		}
	}
	var result handler.Result
	var err error
	for range attempts {
		result, err = m.Actions.Probe(ctx, &f.spec.ProbeHandler, f.target, f.check.timeout)
		if err == nil || ctx.Err() != nil || time.Since(f.started) >= f.check.timeout {
			break
		}
	}
	counts, changed := m.handleResult(ctx, f, result, err)
	if !counts {
		return
	}
	m.recordEvent(f, result, err)
	if changed {
		m.persist()
		ref := pod.RefOf(f.pod)
		m.Log.Debug("container probe result changed", "pod", ref.String(), "podUID", ref.UID,
			"container", f.target.Container.Name, "probe", f.check.kind.String(), "result", result.Status.String())
		m.notifyChange(f.pod.UID)
		m.ResultChanged(f.pod.UID)
	}
}

// notifyChange sends to the channel that Changes has returned, if any.
func (m *Manager) notifyChange(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.pods[uid]; st != nil && st.changes != nil {
		st.changes.Set()
	}
}

// handleResult records the result of a run and queues the next run, unless the run was
// cancelled. counts is false for a cancelled run. changed reports whether the container's
// ProbeResult changed.
func (m *Manager) handleResult(ctx context.Context, f *checkRun, result handler.Result, err error) (counts, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := f.check
	gone := ctx.Err() != nil
	c.cancel()
	c.cancel = nil
	if gone || c.stopped {
		return false, false
	}
	if err == nil {
		ok := result.Status == handler.Success || result.Status == handler.Warning
		if ok {
			c.tally.took.Observe(time.Since(f.started).Seconds())
		} else {
			c.tally.failed++
		}
		last, run := c.lastOK, min(c.streak, c.threshold(c.lastOK))
		changed = c.recordResult(ok)
		if changed || last != c.lastOK || run != min(c.streak, c.threshold(c.lastOK)) {
			m.markChanged()
		}
	}
	if changed {
		c.target.pod.results = nil
	}
	now := time.Now()
	if c.runs() {
		c.next(now)
		m.enqueue(c)
	}
	if changed && c.kind == startup && c.target.result.Started {
		m.startWaiting(c.target, now)
	}
	return true, changed
}

// next sets the time of the next run to the next multiple of the period. After a
// run that took longer than a period, the check is due at once, and later runs
// keep the same multiples.
func (c *check) next(now time.Time) {
	if c.spread {
		c.spread = false
		c.due = now.Add(randomFraction(c.period))
		return
	}
	if due := c.due.Add(c.period); due.After(now) {
		c.due = due
		return
	}
	c.due = c.due.Add(now.Sub(c.due) / c.period * c.period)
}

// startWaiting queues the probes that waited for the startup probe: readiness as soon
// as its delay allows, liveness at the next multiple of its period. The caller holds the
// lock.
func (m *Manager) startWaiting(t *target, now time.Time) {
	if c := t.checks[readiness]; c != nil && c.runs() {
		c.due = t.begun.Add(c.firstRunAfter(readiness))
		if c.due.Before(now) {
			c.due = now
		}
		m.enqueue(c)
	}
	if c := t.checks[liveness]; c != nil && c.runs() {
		c.due = nextTick(t.begun.Add(c.firstRunAfter(liveness)), c.period, now)
		m.enqueue(c)
	}
}

// recordEvent records an event if a run failed, ended with a warning or could not be
// run.
func (m *Manager) recordEvent(f *checkRun, result handler.Result, err error) {
	ref := pod.RefOf(f.pod)
	kind := f.check.kind.String()
	switch {
	case err != nil:
		m.Events.Warning(ref, reasonUnhealthy, validText(kind+" probe errored and resulted in "+result.Status.String()+" state: "+err.Error()))
	case result.Status == handler.Warning:
		m.Events.Warning(ref, reasonWarning, validText(kind+" probe warning: "+result.Output))
	case result.Status == handler.Failure:
		m.Events.Warning(ref, reasonUnhealthy, validText(kind+" probe failed: "+result.Output))
	}
}

// validText replaces invalid UTF-8 in text, which has the output of a container.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
