package statusmanager

import (
	"log/slog"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// outage is the time in which the server answers nobody. It belongs to the
// loop.
type outage struct {
	said     *apiclient.Outage
	until    time.Time // when the next request may be tried
	failed   time.Time // when the last failure came
	answered time.Time // when the last answer came
	wait     apiclient.Backoff
}

func newOutage(log *slog.Logger) outage {
	return outage{said: apiclient.NewOutage(log,
		"the API server takes no reports of pods; they go on when it does", "the API server takes reports of pods again")}
}

func (o *outage) on() bool { return o.said.On() }

// fail takes a request that got no answer, and says whether that is the
// server's fault: it answered no other one meanwhile.
func (o *outage) fail(began, now time.Time, err error) bool {
	if o.answered.After(began) {
		return false
	}
	o.said.Note(err)
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
func (o *outage) succeed(now time.Time) {
	o.answered = now
	if !o.on() {
		return
	}
	o.said.Note(nil)
	o.until = time.Time{}
	o.wait.Reset()
}
