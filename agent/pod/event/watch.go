package event

import "context"

// Watch calls handle with the recorded events, the oldest first, possibly none,
// and then with each event soon after it happens, or happens again. It blocks
// until ctx ends, and returns the cause of ctx, or until handle fails, and returns
// the error of handle. Recording never waits for handle. A slow handle receives an
// event that happened several times once, with its count, and misses events that
// are no longer recorded.
func (r *Recorder) Watch(ctx context.Context, handle func([]Event) error) error {
	nudge := make(chan struct{}, 1)
	defer r.Subscribe(nudge)()
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

// Subscribe sends to slot after each event from now on, unless slot is full. slot
// must have a buffer of one. cancel ends the subscription. One slot may be
// registered with several notifiers, but with each only once at a time.
func (r *Recorder) Subscribe(slot chan<- struct{}) (cancel func()) {
	r.mu.Lock()
	r.subscribers[slot] = struct{}{}
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		delete(r.subscribers, slot)
		r.mu.Unlock()
	}
}
