package oom

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reason is the reason of an OOM-killed container and of the event.
const Reason = container.ReasonOOMKilled

const (
	// exitKilled is the exit code of a process killed by SIGKILL (128 + 9).
	exitKilled = 137
	// reasonUnknown is containerd's reason for an exit whose code it has lost.
	reasonUnknown = "Unknown"
)

// maybeOOMKilled reports whether the container's exit may be an OOM kill.
func maybeOOMKilled(c *container.Container) bool {
	return c.State == container.StateExited && (c.ExitCode == exitKilled || c.Reason == reasonUnknown || c.Reason == Reason)
}

// SetReasons returns seen with the reason OOMKilled for the exits that were OOM kills and
// lack it. It records events of new kills. It blocks only on kernel files and is safe
// for concurrent use. A nil Watcher returns seen unchanged.
func (w *Watcher) SetReasons(p *v1.Pod, seen *container.Observed) *container.Observed {
	if w == nil || seen == nil {
		return seen
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arm()
	l := w.pods[p.UID]
	ends := unclassifiedExits(l, seen)
	if len(ends) > 0 {
		w.check()
		if l = w.pods[p.UID]; l == nil {
			l = w.countersOf(p.UID)
		}
		w.classify(l, p, ends)
	}
	if l == nil {
		return seen
	}
	w.recordUnnamed(l, p, seen)
	l.forget(seen, time.Now())
	return l.apply(seen)
}

// unclassifiedExits returns the unclassified exits, in the order in which unattributed kills
// are assigned to them.
func unclassifiedExits(l *podCounters, seen *container.Observed) []*container.Container {
	var ends []*container.Container
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if !maybeOOMKilled(c) {
			continue
		}
		if l != nil {
			if _, done := l.classified[c.ID]; done {
				continue
			}
		}
		ends = append(ends, c)
	}
	slices.SortStableFunc(ends, func(a, b *container.Container) int {
		if reported := a.Reason == Reason; reported != (b.Reason == Reason) {
			if reported {
				return -1
			}
			return 1
		}
		return b.FinishedAt.Compare(a.FinishedAt)
	})
	return ends
}

func (w *Watcher) classify(l *podCounters, p *v1.Pod, ends []*container.Container) {
	counted := false
	for _, c := range ends {
		killed := l.containers[c.ID].kills > 0
		counted = counted || killed
		if !killed && l.unattributed() > 0 {
			killed = true
			w.recordKill(p, c.Name, l.attribute(c.ID, memoryLimit(p, c.Name) > 0))
		}
		l.setClassified(c.ID, killed)
	}
	if counted {
		l.markAttributed() // kills of its last processes, after its cgroup was last read
	}
}

// forget moves the counters of containers that the runtime no longer lists to removed.
// It keeps counters that rose within recent, because the runtime may not list their
// containers yet, and those of sandboxes. It classifies exits that cannot be OOM kills,
// so that foldRemoved drops their counters once their cgroups are gone.
func (l *podCounters) forget(seen *container.Observed, now time.Time) {
	for id, m := range l.containers {
		_, judged := l.classified[id]
		switch c := find(seen, id); {
		case c == nil && (judged || !isRecent(now, m.changedAt) && !isSandbox(seen, id)):
			l.moveToRemoved(id, m.counts)
		case c != nil && !judged && c.State == container.StateExited && !maybeOOMKilled(c):
			l.setClassified(id, false)
		}
	}
	for id := range l.classified {
		if find(seen, id) == nil {
			delete(l.classified, id)
		}
	}
}

func find(seen *container.Observed, id string) *container.Container {
	for i := range seen.Containers {
		if seen.Containers[i].ID == id {
			return &seen.Containers[i]
		}
	}
	return nil
}

func isSandbox(seen *container.Observed, id string) bool {
	return slices.ContainsFunc(seen.Sandboxes, func(s container.Sandbox) bool { return s.ID == id })
}

// apply returns seen with the reason OOMKilled set on OOM-killed containers. It
// copies seen if it changes it.
func (l *podCounters) apply(seen *container.Observed) *container.Observed {
	out := seen
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if !l.classified[c.ID] || c.Reason == Reason || !maybeOOMKilled(c) {
			continue
		}
		if out == seen {
			copied := *seen
			copied.Containers = slices.Clone(seen.Containers)
			out = &copied
		}
		out.Containers[i].Reason = Reason
	}
	return out
}

// memoryLimit returns the container's own memory limit in bytes; 0 means none.
func memoryLimit(p *v1.Pod, name string) int64 {
	c, _ := pod.FindContainer(&p.Spec, name)
	if c == nil {
		return 0
	}
	return pod.Value(*c.Resources.Limits.Memory())
}
