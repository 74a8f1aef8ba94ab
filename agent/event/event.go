// Package event keeps what happened to pods and to the node: the last
// events in memory, counted rather than repeated, each written to the log
// when it happens, but the same one only every ten minutes.
package event

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Event is one thing that happened, Count times between First and Last.
type Event struct {
	// Pod is what it happened to; the zero Ref is the node.
	Pod     pod.Ref   `json:"pod"`
	Type    string    `json:"type"` // Normal or Warning
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// entry is an event and when it was last logged.
type entry struct {
	Event
	logged time.Time
}

// kept is how many different events are remembered: a few minutes of a busy
// board in under 100 kB.
const kept = 256

// Recorder keeps the last events. It is safe for concurrent use and never
// blocks on anything but its own short lock.
type Recorder struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	events []entry // oldest Last first
}

// NewRecorder makes a recorder that also writes each event to log.
func NewRecorder(log *slog.Logger) *Recorder {
	return &Recorder{log: log, now: time.Now}
}

// Normal records what is expected.
func (r *Recorder) Normal(ref pod.Ref, reason, message string) {
	r.record(ref, v1.EventTypeNormal, reason, message)
}

// Warning records what somebody should look at.
func (r *Recorder) Warning(ref pod.Ref, reason, message string) {
	r.record(ref, v1.EventTypeWarning, reason, message)
}

func (r *Recorder) record(ref pod.Ref, kind, reason, message string) {
	now := r.now()
	e := entry{Event: Event{Pod: ref, Type: kind, Reason: reason, Message: message, First: now}}
	if !r.remember(&e, now) {
		return
	}
	level := slog.LevelInfo
	if kind == v1.EventTypeWarning {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "event", "pod", ref.String(), "podUID", ref.UID,
		"reason", reason, "message", message, "count", e.Count)
}

// quiet is how long a repeated event is counted and not logged: a pod that
// cannot start must not fill the flash.
const quiet = 10 * time.Minute

// remember counts the event in, and says whether it is to be logged.
func (r *Recorder) remember(e *entry, now time.Time) (log bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.events {
		old := &r.events[i]
		if old.Pod == e.Pod && old.Type == e.Type && old.Reason == e.Reason && old.Message == e.Message {
			*e = *old
			r.events = append(r.events[:i], r.events[i+1:]...)
			break
		}
	}
	e.Count++
	e.Last = now
	if log = e.Count == 1 || now.Sub(e.logged) >= quiet; log {
		e.logged = now
	}
	if len(r.events) == kept {
		r.events = append(r.events[:0], r.events[1:]...)
	}
	r.events = append(r.events, *e)
	return log
}

// Recent is a copy of the remembered events, the oldest first.
func (r *Recorder) Recent() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Event, len(r.events))
	for i := range r.events {
		out[i] = r.events[i].Event
	}
	return out
}
