package fake

import (
	"slices"
	"time"
)

// Call is one recorded call of a method of container.Runtime.
type Call struct {
	Method string // such as StartContainer
	// Subject is the object's ID. It is namespace/name of the pod for
	// RunPodSandbox, the container's name for CreateContainer, the image for
	// images, and empty where there is none.
	Subject string
	At      time.Time
	// Done reports whether the call has returned, with Err.
	Done bool
	Err  error
}

func (r *Runtime) recordCall(method, subject string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, Call{Method: method, Subject: subject, At: time.Now()})
	return len(r.calls) - 1
}

func (r *Runtime) completeCall(n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[n].Done, r.calls[n].Err = true, err
}

// Calls returns the calls so far, in the order of their start: those of the
// given methods, or all if none are given.
func (r *Runtime) Calls(methods ...string) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Call
	for _, c := range r.calls {
		if len(methods) == 0 || slices.Contains(methods, c.Method) {
			out = append(out, c)
		}
	}
	return out
}

// Count returns the number of calls so far, of the given methods or of all.
func (r *Runtime) Count(methods ...string) int { return len(r.Calls(methods...)) }
