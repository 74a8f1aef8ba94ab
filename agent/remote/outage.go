package remote

import (
	"log/slog"
	"sync"
)

// outage counts what the server cannot be asked for at present, and logs when
// that begins and when it ends.
type outage struct {
	log *slog.Logger

	mu sync.Mutex
	n  int
}

// begins counts one more thing.
func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n++; o.n == 1 {
		o.log.Warn("objects of the API server stay as they were last known", "error", err)
	}
}

// on says whether anything is counted.
func (o *outage) on() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n > 0
}

// ends counts one thing less, for which the server answers again.
func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.log.Info("objects of the API server are followed again")
	}
}

// leaves counts one thing less, which nobody wants any more.
func (o *outage) leaves() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n--
}
