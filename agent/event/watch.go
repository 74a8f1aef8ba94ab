package event

import "context"

// Watch hands the remembered events to handle, the oldest first, perhaps
// none, and then each that happens, or happens again, soon after it did. It
// blocks until ctx ends, with the cause, or handle fails, with its error.
// Recording never waits for handle: a slow one gets an event that happened
// again meanwhile once, with its count, and misses those that are no longer
// remembered.
func (r *Recorder) Watch(ctx context.Context, handle func([]Event) error) error {
	nudge := make(chan struct{}, 1)
	r.mu.Lock()
	if r.watchers == nil {
		r.watchers = make(map[chan struct{}]struct{})
	}
	r.watchers[nudge] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, nudge)
	}()
	var seen uint64
	for {
		r.mu.Lock()
		events := r.ring.after(seen)
		seen = r.ring.last
		r.mu.Unlock()
		if err := handle(events); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-nudge:
		}
	}
}
