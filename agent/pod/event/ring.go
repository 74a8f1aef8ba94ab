package event

import (
	"time"

	"github.com/tinylet/tinylet/agent/pod"
)

// maxEvents is the maximum number of recorded events. One pod, or the node, may have
// maxEventsPerPod of them.
const (
	maxEvents       = 256
	maxEventsPerPod = 32
)

// After similar different messages with one reason within interval, further ones
// are combined into one event.
const (
	maxSimilar      = 10
	similarInterval = 10 * time.Minute
)

// Combined is the prefix of the message of an event that stands for several similar ones,
// as in Kubernetes. The rest of the message varies.
const Combined = "(combined from similar events): "

// The event that replaces events beyond the rate limit.
const (
	reasonDropped  = "EventsDropped"
	messageDropped = "event rate limit of this pod exceeded: new events are counted, but not recorded"
)

// entry is an event with the ring's bookkeeping.
type entry struct {
	Event
	combined bool
	logged   time.Time
	number   uint64 // of its last occurrence, counted from 1
}

// mergePrevious makes e a further occurrence of old.
func (e *entry) mergePrevious(old entry) {
	e.Count, e.First, e.logged, e.Annotations = old.Count, old.First, old.logged, old.Annotations
}

// drop replaces e by the event for dropped events.
func (e *entry) drop() {
	e.Reason, e.Message, e.Annotations, e.combined = reasonDropped, messageDropped, nil, false
}

func (e *entry) sameGroup(o *entry) bool {
	return e.Pod == o.Pod && e.Type == o.Type && e.Reason == o.Reason
}

// ring holds the recorded events, ordered by their last occurrence, the oldest
// first.
type ring struct {
	entries []entry
	last    uint64 // number of the newest
}

// find returns the index of an earlier occurrence of e, or -1.
func (r *ring) find(e *entry) int {
	for i := range r.entries {
		if old := &r.entries[i]; old.Message == e.Message && old.sameGroup(e) {
			return i
		}
	}
	return -1
}

// combine makes e a combined event if there are too many similar ones. It then
// returns the index of the earlier combined event, or -1 if there is none. It
// returns -1 as well if e is not combined.
func (r *ring) combine(e *entry, now time.Time) int {
	at, count := -1, 0
	for i := range r.entries {
		switch old := &r.entries[i]; {
		case !old.sameGroup(e):
		case old.combined:
			at = i
		case now.Sub(old.Last) <= similarInterval:
			count++
		}
	}
	if count < maxSimilar && (at < 0 || now.Sub(r.entries[at].Last) > similarInterval) {
		return -1
	}
	e.combined = true
	e.Message = truncate(Combined + e.Message)
	return at
}

func (r *ring) remove(i int) entry {
	e := r.entries[i]
	r.entries = append(r.entries[:i], r.entries[i+1:]...)
	return e
}

// add adds an entry as the newest. If the pod, or else the ring, has too many, its
// oldest entry is removed.
func (r *ring) add(e entry) {
	if oldest, count := r.ofPod(e.Pod); count >= maxEventsPerPod {
		r.remove(oldest)
	} else if len(r.entries) >= maxEvents {
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

// after returns a copy of the events after the one with that number.
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
