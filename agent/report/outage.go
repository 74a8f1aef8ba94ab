package report

import (
	"log/slog"
	"time"

	"github.com/tinylet/tinylet/agent/apiclient"
)

// outage is the time in which the server answers nobody. It belongs to the
// loop. The zero value is none.
type outage struct {
	since    time.Time // zero: there is none
	until    time.Time // when the next request may be tried
	failed   time.Time // when the last failure came
	answered time.Time // when the last answer came
	wait     apiclient.Backoff
}

func (o *outage) on() bool { return !o.since.IsZero() }

// fail takes a request that got no answer, and says whether that is the
// server's fault: it answered no other one meanwhile.
func (o *outage) fail(log *slog.Logger, began, now time.Time, err error) bool {
	if o.answered.After(began) {
		return false
	}
	if !o.on() {
		o.since = began
		log.Warn("the API server takes no reports of pods; they go on when it does", "error", err)
	}
	// Several requests that fail together count once.
	if !began.Before(o.failed) {
		o.until, o.failed = now.Add(o.wait.Next()), now
	}
	return true
}

// recovered takes that the server answers others again.
func (o *outage) recovered(now time.Time) {
	o.answered = now
	if o.on() {
		o.until = now
	}
}

// succeed takes that a request was answered.
func (o *outage) succeed(log *slog.Logger, now time.Time) {
	o.answered = now
	if !o.on() {
		return
	}
	log.Info("the API server takes reports of pods again", "after", now.Sub(o.since).Round(time.Second))
	o.since, o.until = time.Time{}, time.Time{}
	o.wait.Reset()
}
