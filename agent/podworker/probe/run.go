package probe

import (
	"context"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// Reasons of events, from pkg/kubelet/events/event.go.
const (
	reasonUnhealthy = "Unhealthy"
	reasonWarning   = "ProbeWarning"
)

// attempts is the maximum number of attempts of one run if the probe cannot be
// run.
const attempts = 3

// maxMessage is the maximum length of an event's message in bytes. It limits the
// output that a container can put into an event.
const maxMessage = 1024

// saveAfter is the delay in which changes are collected and saved together. A
// change that is reported through Config.Changed is saved at once.
const saveAfter = time.Second

// Run runs the probes until ctx ends. It then waits for the runs in flight, saves
// the state and returns the cause of ctx. Only one Run may be active at a time.
func (m *Manager) Run(ctx context.Context) error {
	var flights sync.WaitGroup
	defer m.store()
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
			m.store()
			continue
		}
		if wait, more := m.launch(ctx, &flights); more {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// launch starts the checks that are due. It returns the time until the next one,
// and whether there is one.
func (m *Manager) launch(ctx context.Context, flights *sync.WaitGroup) (wait time.Duration, more bool) {
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
		f := flight{check: c, started: now, pod: c.of.pod.pod, spec: c.spec, host: c.of.pod.host}
		f.target = handler.Target{ContainerID: c.of.id, Container: c.of.c, IP: c.of.pod.ip}
		flights.Go(func() { m.fly(limited, &f) })
	}
	m.armed = time.Time{}
	return 0, false
}

// push queues a check, and wakes Run if the check is due before the timer.
func (m *Manager) push(c *check) {
	m.queue.add(c)
	if !m.armed.IsZero() && !c.due.Before(m.armed) {
		return
	}
	m.armed = c.due
	select {
	case m.wake <- struct{}{}:
	default: // Run has not handled the last wakeup yet
	}
}

// flight is one run of a check in flight. It has copies of the pod's fields that
// it needs, because it runs without the manager's lock.
type flight struct {
	check   *check
	started time.Time
	pod     *v1.Pod
	spec    *v1.Probe
	host    bool
	target  handler.Target
}

// fly runs a check once and handles its result.
func (m *Manager) fly(ctx context.Context, f *flight) {
	if f.host && m.HostIPs != nil {
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
	counts, changed := m.land(ctx, f, result, err)
	if !counts {
		return
	}
	m.tell(f, result, err)
	if changed {
		m.store()
		ref := pod.RefOf(f.pod)
		m.Log.Debug("container probe result changed", "pod", ref.String(), "podUID", ref.UID,
			"container", f.target.Container.Name, "probe", f.check.kind.String(), "result", result.Status.String())
		m.Changed(f.pod.UID)
	}
}

// land counts the result of a run, unless the run was cancelled, and queues the
// next run. counts reports whether the result counts, changed whether it changed
// the container's Result.
func (m *Manager) land(ctx context.Context, f *flight, result handler.Result, err error) (counts, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := f.check
	gone := ctx.Err() != nil
	c.cancel()
	c.cancel = nil
	if gone || c.off {
		return false, false
	}
	if err == nil {
		ok := result.Status == handler.Success || result.Status == handler.Warning
		c.tally.count(ok, time.Since(f.started))
		last, run := c.last, min(c.run, c.threshold(c.last))
		changed = c.learn(ok)
		if changed || last != c.last || run != min(c.run, c.threshold(c.last)) {
			m.touch()
		}
	}
	if changed {
		c.of.pod.results = nil
	}
	now := time.Now()
	if c.runs() {
		c.next(now)
		m.push(c)
	}
	if changed && c.kind == startup && c.of.result.Started {
		m.release(c.of, now)
	}
	return true, changed
}

// next sets the time of the next run to the next multiple of the period. After a
// run that took longer than a period, the check is due at once, and later runs
// keep the same multiples.
func (c *check) next(now time.Time) {
	if c.spread {
		c.spread = false
		c.due = now.Add(fraction(c.period))
		return
	}
	if due := c.due.Add(c.period); due.After(now) {
		c.due = due
		return
	}
	c.due = c.due.Add(now.Sub(c.due) / c.period * c.period)
}

// release queues the probes that waited for the startup probe: readiness as soon
// as its delay allows, liveness at the next multiple of its period.
func (m *Manager) release(t *target, now time.Time) {
	if c := t.checks[readiness]; c != nil && c.runs() {
		c.due = t.begun.Add(c.first(readiness))
		if c.due.Before(now) {
			c.due = now
		}
		m.push(c)
	}
	if c := t.checks[liveness]; c != nil && c.runs() {
		c.due = after(t.begun.Add(c.first(liveness)), c.period, now)
		m.push(c)
	}
}

// tell records an event if a run failed, ended with a warning or could not be
// run.
func (m *Manager) tell(f *flight, result handler.Result, err error) {
	ref := pod.RefOf(f.pod)
	kind := f.check.kind.String()
	switch {
	case err != nil:
		m.Events.Warning(ref, reasonUnhealthy, cut(kind+" probe errored and resulted in "+result.Status.String()+" state: "+err.Error()))
	case result.Status == handler.Warning:
		m.Events.Warning(ref, reasonWarning, cut(kind+" probe warning: "+result.Output))
	case result.Status == handler.Failure:
		m.Events.Warning(ref, reasonUnhealthy, cut(kind+" probe failed: "+result.Output))
	}
}

// cut shortens text to maxMessage bytes and makes it valid UTF-8.
func cut(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage-3] + "..."
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
