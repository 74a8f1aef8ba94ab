package apiobjects

import (
	"sync"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// outage counts what the server cannot be asked for at present: it begins with
// the first thing and ends with the last.
type outage struct {
	said *apiclient.Outage

	mu sync.Mutex
	n  int
}

// begins counts one more thing.
func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.said.Note(err)
}

// on says whether anything is counted.
func (o *outage) on() bool { return o.said.On() }

// ends counts one thing less, for which the server answers again.
func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.said.Note(nil)
	}
}

// leaves counts one thing less, which nobody wants any more.
func (o *outage) leaves() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.said.Forget()
	}
}
