package fake

import (
	"context"
	"slices"
	"time"

	"github.com/tinylet/tinylet/agent/container"
)

// Fault is a failure of calls of one method.
type Fault struct {
	// Err is returned. With neither Err nor Hang the call proceeds after Delay.
	Err error
	// Hang never answers: the call ends with its context, with the driver's
	// timeout, or when the connection breaks.
	Hang bool
	// Late lets the call take effect first: only the answer is lost.
	Late bool
	// Delay passes before anything else happens.
	Delay time.Duration
	// Skip is how many matching calls the fault lets pass first.
	Skip int
	// Times is how many calls fail after that; 0 is all of them.
	Times int
	// Match limits the fault to the subjects for which it returns true (see
	// Call); nil matches all. It must not call the runtime.
	Match func(subject string) bool
}

type fault struct {
	Fault
	method string
	seen   int
}

// Inject adds a fault to the calls of a method, or of all if method is "*". Of
// several faults that match, the one injected first applies. The fault stays
// until remove is called or its Times are used up.
func (r *Runtime) Inject(method string, f Fault) (remove func()) {
	added := &fault{Fault: f, method: method}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, added)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.faults = slices.DeleteFunc(r.faults, func(f *fault) bool { return f == added })
	}
}

// matchFault returns the fault that applies to this call, or nil.
func (r *Runtime) matchFault(method, subject string) *fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		if f.method != method && f.method != "*" {
			continue
		}
		if f.Match != nil && !f.Match(subject) {
			continue
		}
		if f.Times > 0 && f.seen >= f.Skip+f.Times {
			continue
		}
		f.seen++
		if f.seen > f.Skip {
			return f
		}
	}
	return nil
}

func (f *fault) apply(ctx context.Context, broken <-chan struct{}) error {
	if f.Delay <= 0 && !f.Hang {
		return f.Err
	}
	var elapsed <-chan time.Time // nil with Hang
	if !f.Hang {
		elapsed = time.After(f.Delay)
	}
	select {
	case <-elapsed:
		return f.Err
	case <-broken:
		return container.ErrUnavailable
	case <-ctx.Done():
		return ctx.Err()
	}
}
