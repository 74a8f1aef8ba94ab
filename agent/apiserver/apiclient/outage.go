package apiclient

import (
	"log/slog"
	"sync"
	"time"
)

// Outage is a spell in which the server does not do what somebody asks of it.
// It logs each spell twice, when it begins and when it ends, however often the
// server was asked meanwhile. All methods may be called at once.
type Outage struct {
	log          *slog.Logger
	begins, ends string

	mu    sync.Mutex
	since time.Time // zero: there is none
}

// NewOutage makes an Outage with the messages of a spell's begin and end.
func NewOutage(log *slog.Logger, begins, ends string) *Outage {
	return &Outage{log: log, begins: begins, ends: ends}
}

// Note takes how an attempt went: an error begins a spell, unless one is on,
// and nil ends it.
func (o *Outage) Note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch on := !o.since.IsZero(); {
	case err != nil && !on:
		o.since = time.Now()
		o.log.Warn(o.begins, "error", err)
	case err == nil && on:
		o.log.Info(o.ends, "after", time.Since(o.since).Round(time.Second))
		o.since = time.Time{}
	}
}

// On says whether a spell is on.
func (o *Outage) On() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero()
}

// Forget ends a spell without a word: nobody asks any more.
func (o *Outage) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since = time.Time{}
}
