package apiclient

import (
	"log/slog"
	"sync"
	"time"
)

// Outage detects periods in which requests to the API server fail. It logs the begin
// and the end of each, regardless of the number of attempts. Its methods may be called
// concurrently.
type Outage struct {
	log          *slog.Logger
	begins, ends string

	mu    sync.Mutex
	since time.Time // zero means no outage
}

// NewOutage returns an Outage with the log messages for its begin and end.
func NewOutage(log *slog.Logger, begins, ends string) *Outage {
	return &Outage{log: log, begins: begins, ends: ends}
}

// Record records the result of an attempt: an error begins an outage unless one has
// begun, nil ends it.
func (o *Outage) Record(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch on := !o.since.IsZero(); {
	case err != nil && !on:
		o.since = time.Now()
		o.log.Warn(o.begins, "error", err)
	case err == nil && on:
		o.log.Info(o.ends, "duration", time.Since(o.since).Round(time.Second))
		o.since = time.Time{}
	}
}

// Active reports whether there is an outage.
func (o *Outage) Active() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

// Forget ends an outage without logging, for callers that stop their attempts.
func (o *Outage) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since = time.Time{}
}
