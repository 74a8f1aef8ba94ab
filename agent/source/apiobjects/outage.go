package apiobjects

import (
	"sync"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// outage counts the objects that currently cannot be read from the API server.
// It starts with the first and ends with the last.
type outage struct {
	said *apiclient.Outage

	mu sync.Mutex
	n  int
}

// begins adds one object.
func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.said.Note(err)
}

// on reports whether an outage is in progress.
func (o *outage) on() bool { return o.said.On() }

// ends removes one object that can be read again.
func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.said.Note(nil)
	}
}

// leaves removes one object that is no longer referenced.
func (o *outage) leaves() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.said.Forget()
	}
}
