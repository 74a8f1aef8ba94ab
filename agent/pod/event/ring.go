package event

import (
	"time"

	"github.com/tinylet/tinylet/agent/pod"
)

// kept is how many different events are remembered: a few minutes of a busy
// board in under 100 kB. keptOfPod of them may be of one pod.
const (
	kept      = 256
	keptOfPod = 32
)

// Of more than similar different messages with one reason within interval,
// those that follow are combined into one event.
const (
	similar  = 10
	interval = 10 * time.Minute
)

// combined begins the message of such an event, as in Kubernetes.
const combined = "(combined from similar events): "

// The event that stands for those that came too fast to be kept.
const (
	reasonDropped  = "EventsDropped"
	messageDropped = "more events than this pod may have: those that are new are only counted"
)

// entry is an event and what the ring knows of it.
type entry struct {
	Event
	combined bool
	logged   time.Time
	number   uint64 // of its last occurrence, counted from 1
}

// follow makes e the next occurrence of old.
func (e *entry) follow(old entry) {
	e.Count, e.First, e.logged, e.Annotations = old.Count, old.First, old.logged, old.Annotations
}

// drop makes e the event that stands for it.
func (e *entry) drop() {
	e.Reason, e.Message, e.Annotations, e.combined = reasonDropped, messageDropped, nil, false
}

func (e *entry) alike(o *entry) bool {
	return e.Pod == o.Pod && e.Type == o.Type && e.Reason == o.Reason
}

// ring is the remembered events, the oldest last occurrence first.
type ring struct {
	entries []entry
	last    uint64 // number of the newest
}

// find is the index of an earlier occurrence of e, or -1.
func (r *ring) find(e *entry) int {
	for i := range r.entries {
		if old := &r.entries[i]; old.Message == e.Message && old.alike(e) {
			return i
		}
	}
	return -1
}

// combine makes e one of those that are combined, where there are too many
// similar ones; then its answer is the index of the earlier ones, or -1.
func (r *ring) combine(e *entry, now time.Time) int {
	at, count := -1, 0
	for i := range r.entries {
		switch old := &r.entries[i]; {
		case !old.alike(e):
		case old.combined:
			at = i
		case now.Sub(old.Last) <= interval:
			count++
		}
	}
	if count < similar && (at < 0 || now.Sub(r.entries[at].Last) > interval) {
		return -1
	}
	e.combined = true
	e.Message = shorten(combined + e.Message)
	return at
}

// remove takes an entry out.
func (r *ring) remove(i int) entry {
	e := r.entries[i]
	r.entries = append(r.entries[:i], r.entries[i+1:]...)
	return e
}

// add puts an entry in as the newest. Where the pod, or else the ring, has
// too many, its oldest goes.
func (r *ring) add(e entry) {
	if oldest, count := r.ofPod(e.Pod); count >= keptOfPod {
		r.remove(oldest)
	} else if len(r.entries) >= kept {
		r.remove(0)
	}
	r.last++
	e.number = r.last
	r.entries = append(r.entries, e)
}

func (r *ring) ofPod(ref pod.Ref) (oldest, count int) {
	for i := range r.entries {
		if r.entries[i].Pod != ref {
			continue
		}
		if count == 0 {
			oldest = i
		}
		count++
	}
	return oldest, count
}

// after copies the events that happened after the one with that number.
func (r *ring) after(number uint64) []Event {
	first := len(r.entries)
	for first > 0 && r.entries[first-1].number > number {
		first--
	}
	out := make([]Event, len(r.entries)-first)
	for i := range out {
		out[i] = r.entries[first+i].Event
	}
	return out
}
