package oom

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reason is that of a container's end and of the event (the runtimes' word,
// which the kubelet passes on).
const Reason = "OOMKilled"

const (
	// exitKilled is the code of a process that was killed (128 + SIGKILL).
	exitKilled = 137
	// reasonUnknown is containerd's word for an end whose code it has lost.
	reasonUnknown = "Unknown"
)

// suspicious says whether memory may have been what the container ended for.
func suspicious(c *container.Container) bool {
	return c.State == container.StateExited && (c.ExitCode == exitKilled || c.Reason == reasonUnknown || c.Reason == Reason)
}

// Judge answers what the runtime shows of the pod with the reason OOMKilled at
// the ends that had it and do not say so. It tells of kills, blocks on nothing
// but the kernel's files, and is safe for concurrent use; a nil Watcher answers
// seen as it is.
func (w *Watcher) Judge(p *v1.Pod, seen *container.Observed) *container.Observed {
	if w == nil || seen == nil {
		return seen
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arm()
	l := w.pods[p.UID]
	ends := suspects(l, seen)
	if len(ends) > 0 {
		w.look()
		if l = w.pods[p.UID]; l == nil {
			l = w.ledger(p.UID)
		}
		w.judge(l, p, ends)
	}
	if l == nil {
		return seen
	}
	w.tellLate(l, p, seen)
	l.forget(seen, time.Now())
	return l.apply(seen)
}

// suspects are the ends that are to be judged, in the order in which loose
// kills are theirs.
func suspects(l *ledger, seen *container.Observed) []*container.Container {
	var ends []*container.Container
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if !suspicious(c) {
			continue
		}
		if l != nil {
			if _, done := l.judged[c.ID]; done {
				continue
			}
		}
		ends = append(ends, c)
	}
	slices.SortStableFunc(ends, func(a, b *container.Container) int {
		if told := a.Reason == Reason; told != (b.Reason == Reason) {
			if told {
				return -1
			}
			return 1
		}
		return b.FinishedAt.Compare(a.FinishedAt)
	})
	return ends
}

// judge notes of each end whether it was for memory.
func (w *Watcher) judge(l *ledger, p *v1.Pod, ends []*container.Container) {
	counted := false
	for _, c := range ends {
		killed := l.containers[c.ID].kills > 0
		counted = counted || killed
		if !killed && l.loose() > 0 {
			killed = true
			w.tell(p, c.Name, l.give(c.ID, memoryLimit(p, c.Name) > 0))
		}
		l.verdict(c.ID, killed)
	}
	if counted {
		l.settle() // the last of its processes, whose group was gone at the look
	}
}

// forget drops what nobody asks for any more: the counts of containers that
// have ended for another reason, once their groups are gone, and all of those
// that the runtime has forgotten. It may not have listed yet what was counted
// just now.
func (l *ledger) forget(seen *container.Observed, now time.Time) {
	for id, m := range l.containers {
		_, judged := l.judged[id]
		switch c := find(seen, id); {
		case c == nil && (judged || !soon(now, m.at) && !isSandbox(seen, id)):
			l.pass(id, m.counts)
		case c != nil && !judged && c.State == container.StateExited && !suspicious(c):
			l.verdict(id, false)
		}
	}
	for id := range l.judged {
		if find(seen, id) == nil {
			delete(l.judged, id)
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

// apply is seen with the verdicts.
func (l *ledger) apply(seen *container.Observed) *container.Observed {
	out := seen
	for i := range seen.Containers {
		c := &seen.Containers[i]
		if !l.judged[c.ID] || c.Reason == Reason || !suspicious(c) {
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

// memoryLimit is the container's own, in bytes; 0 is none.
func memoryLimit(p *v1.Pod, name string) int64 {
	c, _ := pod.Find(&p.Spec, name)
	if c == nil {
		return 0
	}
	return c.Resources.Limits.Memory().Value()
}
