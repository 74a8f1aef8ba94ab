// Package event keeps what happened to pods and to the node: the last
// events in memory, counted rather than repeated, each written to the log
// when it happens, but the same one only every ten minutes.
//
// A pod that is broken must neither fill the log nor push out what happened
// to others. As in Kubernetes (k8s.io/client-go/tools/record), many messages
// with one reason become one event, and one pod may have so many different
// events at a time and no more.
package event

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Event is one thing that happened, Count times between First and Last.
type Event struct {
	// Pod is what it happened to; the zero Ref is the node.
	Pod     pod.Ref `json:"pod"`
	Type    string  `json:"type"` // Normal or Warning
	Reason  string  `json:"reason"`
	Message string  `json:"message"`
	// Annotations tell programs more than the message does. They are those of
	// its first time, and nobody changes them.
	Annotations map[string]string `json:"annotations,omitempty"`

	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// maxMessage bounds a message, in bytes: a message may quote what a
// container wrote.
const maxMessage = 1024

// Recorder keeps the last events. It is safe for concurrent use and never
// blocks on anything but its own short lock.
type Recorder struct {
	log *slog.Logger
	now func() time.Time

	mu       sync.Mutex
	ring     ring
	limits   limits
	watchers map[chan<- struct{}]struct{}
}

// NewRecorder makes a recorder that also writes each event to log.
func NewRecorder(log *slog.Logger) *Recorder {
	return &Recorder{log: log, now: time.Now}
}

// Normal records what is expected.
func (r *Recorder) Normal(ref pod.Ref, reason, message string) {
	r.record(ref, v1.EventTypeNormal, reason, message, nil)
}

// Warning records what somebody should look at.
func (r *Recorder) Warning(ref pod.Ref, reason, message string) {
	r.record(ref, v1.EventTypeWarning, reason, message, nil)
}

// Annotated is Warning with annotations, which the caller does not change any
// more.
func (r *Recorder) Annotated(ref pod.Ref, reason, message string, annotations map[string]string) {
	r.record(ref, v1.EventTypeWarning, reason, message, annotations)
}

func (r *Recorder) record(ref pod.Ref, kind, reason, message string, annotations map[string]string) {
	now := r.now()
	e := entry{Event: Event{Pod: ref, Type: kind, Reason: reason, Message: shorten(message), Annotations: annotations, First: now}}
	if !r.remember(&e, now) {
		return
	}
	level := slog.LevelInfo
	if kind == v1.EventTypeWarning {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "event", "pod", ref.String(), "podUID", ref.UID,
		"reason", e.Reason, "message", e.Message, "count", e.Count)
}

// shorten cuts a message that is too long, between two characters.
func shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage - len("...")
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "..."
}

// quiet is how long a repeated event is counted and not logged: a pod that
// cannot start must not fill the flash.
const quiet = 10 * time.Minute

// remember counts the event in, and says whether it is to be logged.
func (r *Recorder) remember(e *entry, now time.Time) (log bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.ring.find(e)
	if at < 0 {
		at = r.ring.combine(e, now)
	}
	if at < 0 && !r.limits.allow(e.Pod, e.Type, now) {
		e.drop()
		at = r.ring.find(e)
	}
	if at >= 0 {
		e.follow(r.ring.remove(at))
	}
	e.Count++
	e.Last = now
	if log = e.Count == 1 || now.Sub(e.logged) >= quiet; log {
		e.logged = now
	}
	r.ring.add(*e)
	for nudge := range r.watchers {
		select {
		case nudge <- struct{}{}:
		default: // one is there
		}
	}
	return log
}

// Recent is a copy of the remembered events, the oldest first.
func (r *Recorder) Recent() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring.after(0)
}
