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
	defer r.Notify(nudge)()
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

// Notify fills slot, which has room for one, after each event from now on,
// unless it is full. cancel ends it. One slot may be given to several that
// notify, but to each only once at a time.
func (r *Recorder) Notify(slot chan<- struct{}) (cancel func()) {
	r.mu.Lock()
	if r.watchers == nil {
		r.watchers = make(map[chan<- struct{}]struct{})
	}
	r.watchers[slot] = struct{}{}
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		delete(r.watchers, slot)
		r.mu.Unlock()
	}
}
