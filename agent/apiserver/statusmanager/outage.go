package statusmanager

import (
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/wait"
)

// outage is the state of outages of the server. It belongs to the loop.
type outage struct {
	said     *apiclient.Outage
	until    time.Time // when the next request may be tried
	failed   time.Time // time of the last failure
	answered time.Time // time of the last response
	wait     wait.Backoff
}

func (o *outage) on() bool { return o.said.Active() }

// fail handles a request without a response. It reports whether the server is the
// cause: it answered no other request since began.
func (o *outage) fail(began, now time.Time, err error) bool {
	if o.answered.After(began) {
		return false
	}
	o.said.Record(err)
	// Several requests that fail together count once.
	if !began.Before(o.failed) {
		o.until, o.failed = now.Add(o.wait.Next()), now
	}
	return true
}

// recovered records that the server answers other components again.
func (o *outage) recovered(now time.Time) {
	o.answered = now
	if o.on() {
		o.until = now
	}
}

// succeed records that a request got a response.
func (o *outage) succeed(now time.Time) {
	o.answered = now
	if !o.on() {
		return
	}
	o.said.Record(nil)
	o.until = time.Time{}
	o.wait.Reset()
}
