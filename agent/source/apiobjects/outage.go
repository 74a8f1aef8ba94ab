package apiobjects

import (
	"sync"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// outage counts the objects that currently cannot be read from the API server.
// It starts with the first and ends with the last.
type outage struct {
	log *apiclient.Outage

	mu sync.Mutex
	n  int
}

// add adds one object.
func (o *outage) add(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.log.Record(err)
}

// on reports whether an outage is in progress.
func (o *outage) on() bool { return o.log.Active() }

// resolve removes one object that can be read again.
func (o *outage) resolve() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.log.Record(nil)
	}
}

// drop removes one object that is no longer referenced.
func (o *outage) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.log.Forget()
	}
}
