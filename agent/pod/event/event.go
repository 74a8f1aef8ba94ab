// Package event records the events of pods and of the node. It keeps the last
// events in memory, counts repeated ones, and logs each event when it happens, a
// repeated one at most every ten minutes.
//
// A broken pod must neither fill the log nor displace the events of other pods. As
// in Kubernetes (k8s.io/client-go/tools/record), many messages with one reason are
// combined into one event, and the rate of different events of one pod is limited.
package event

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// Event is an event that happened Count times between First and Last.
type Event struct {
	// Pod is the pod that the event is about. The zero Ref is the node.
	Pod     pod.Ref `json:"pod"`
	Type    string  `json:"type"` // Normal or Warning
	Reason  string  `json:"reason"`
	Message string  `json:"message"`
	// Annotations are details for programs. They are those of the first
	// occurrence. They are shared and must not be changed.
	Annotations map[string]string `json:"annotations,omitempty"`

	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// maxMessage bounds a message, in bytes: a message may quote the output of a
// container.
const maxMessage = 1024

// Recorder keeps the last events. It is safe for concurrent use and blocks only
// briefly, on its own lock.
type Recorder struct {
	log *slog.Logger

	mu          sync.Mutex
	ring        ring
	limiter     rateLimiter
	subscribers map[chan<- struct{}]struct{}
}

// NewRecorder returns a Recorder that also logs events to log.
func NewRecorder(log *slog.Logger) *Recorder {
	return &Recorder{log: log, limiter: make(rateLimiter), subscribers: make(map[chan<- struct{}]struct{})}
}

// Normal records an event of type Normal.
func (r *Recorder) Normal(ref pod.Ref, reason, message string) {
	r.record(ref, v1.EventTypeNormal, reason, message, nil)
}

// Warning records an event of type Warning.
func (r *Recorder) Warning(ref pod.Ref, reason, message string) {
	r.record(ref, v1.EventTypeWarning, reason, message, nil)
}

// AnnotatedWarning records an event of type Warning with annotations. The caller must not
// change the annotations afterwards.
func (r *Recorder) AnnotatedWarning(ref pod.Ref, reason, message string, annotations map[string]string) {
	r.record(ref, v1.EventTypeWarning, reason, message, annotations)
}

func (r *Recorder) record(ref pod.Ref, kind, reason, message string, annotations map[string]string) {
	now := time.Now()
	e := entry{Event: Event{Pod: ref, Type: kind, Reason: reason, Message: truncate(message), Annotations: annotations, First: now}}
	if !r.store(&e, now) {
		return
	}
	level := slog.LevelInfo
	if kind == v1.EventTypeWarning {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "event", "pod", ref.String(), "podUID", ref.UID,
		"reason", e.Reason, "message", e.Message, "count", e.Count)
}

// truncate truncates a message to maxMessage bytes, between two characters.
func truncate(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage - len("...")
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "..."
}

// logInterval is how long a repeated event is counted but not logged: the log of a pod
// that cannot start must not fill the flash.
const logInterval = 10 * time.Minute

// store adds the event to the ring and notifies the watchers. It reports
// whether the event is to be logged.
func (r *Recorder) store(e *entry, now time.Time) (log bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.ring.find(e)
	if at < 0 {
		at = r.ring.combine(e, now)
	}
	if at < 0 && !r.limiter.allow(e.Pod, e.Type, now) {
		e.drop()
		at = r.ring.find(e)
	}
	if at >= 0 {
		e.mergePrevious(r.ring.remove(at))
	}
	e.Count++
	e.Last = now
	if log = e.Count == 1 || now.Sub(e.logged) >= logInterval; log {
		e.logged = now
	}
	r.ring.add(*e)
	for nudge := range r.subscribers {
		wait.Notify(nudge)
	}
	return log
}

// Recent returns a copy of the recorded events, the oldest first.
func (r *Recorder) Recent() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring.after(0)
}
