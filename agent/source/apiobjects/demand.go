package apiobjects

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/wait"
)

// Timing of cached reads.
const (
	// readTimeout is how long a read waits for the API server when it could return
	// the last known value.
	readTimeout = 5 * time.Second
	// recently is how long a value is cached that is likely to change soon,
	// such as that an object does not exist.
	recently = 5 * time.Second
)

// validity is how long a fetched value may be used.
type validity struct {
	// fresh is the time until which the value is not fetched again.
	fresh time.Time
	// until is the time from which the value is unusable; zero means never.
	until time.Time
}

func validFor(d time.Duration) validity { return validity{fresh: time.Now().Add(d)} }

// readCache is a read-through cache. A value is fetched when it is read, and again
// at the first read after it is no longer fresh. Objects.Run makes one
// single-flight fetch per key, however many readers there are. While fetching
// fails, reads return the last known value if it is still valid, and the fetch
// is retried with backoff.
type readCache[K comparable, V any] struct {
	o       *Objects
	fetch   func(context.Context, K) (V, validity, error)
	timeout time.Duration // how long a read with a usable value waits without an outage; zero: not
	missing time.Duration // how long NotFound is cached; zero treats it like any error

	mu    sync.Mutex
	slots map[K]*slot[V]
}

// slot is the cache entry of one key.
type slot[V any] struct {
	value   V
	known   bool            // value is set
	until   time.Time       // when the value becomes unusable; zero means never
	err     error           // of the last attempt
	next    time.Time       // no fetch before this time
	again   <-chan struct{} // closed when the API server is reachable again
	flight  chan struct{}   // closed at the end of the fetch in progress; nil without one
	backoff wait.Backoff
	out     bool // counted in the outage: an old value is served after a failure
	// renewals counts the calls of invalidate. A fetch that started before the
	// last one is not new enough.
	renewals int
	tried    int // the value of renewals that the last fetch covered
}

func newReadCache[K comparable, V any](o *Objects, fetch func(context.Context, K) (V, validity, error), timeout, missing time.Duration) *readCache[K, V] {
	return &readCache[K, V]{o: o, fetch: fetch, timeout: timeout, missing: missing, slots: make(map[K]*slot[V])}
}

func (s *slot[V]) usable(now time.Time) bool {
	return s.known && (s.until.IsZero() || now.Before(s.until))
}

// recovered reports whether the API server became reachable after a failed
// fetch.
func (s *slot[V]) recovered() bool {
	if s.err == nil {
		return false
	}
	select {
	case <-s.again:
		return true
	default:
		return false
	}
}

// answer returns the current value or error.
func (s *slot[V]) answer(now time.Time) (V, error) {
	if s.usable(now) {
		return s.value, nil
	}
	var none V
	if s.err == nil {
		return none, errUnknown
	}
	return none, s.err
}

// read returns the value of k. It waits for the API server if needed.
func (d *readCache[K, V]) read(ctx context.Context, k K) (V, error) {
	d.mu.Lock()
	s := d.slots[k]
	if s == nil {
		s = new(slot[V])
		d.slots[k] = s
	}
	now := time.Now()
	if s.flight == nil && (!now.Before(s.next) || s.recovered()) {
		s.again = d.o.config.Recovered.Next()
		s.flight = make(chan struct{})
		d.o.start(func(ctx context.Context) { d.runFetch(ctx, k, s) })
	}
	flight, usable, tried := s.flight, s.usable(now), s.tried == s.renewals
	value, err := s.answer(now)
	d.mu.Unlock()
	if flight == nil || usable && (d.timeout == 0 || tried && d.o.outage.on()) {
		return value, err
	}
	return d.wait(ctx, k, s, flight, usable)
}

// wait waits for a fetch and returns its result. If there is a usable value, it
// waits only for the timeout of the cache, and later reads do not wait again
// until the API server has responded.
func (d *readCache[K, V]) wait(ctx context.Context, k K, s *slot[V], flight chan struct{}, usable bool) (V, error) {
	var late <-chan time.Time
	if usable {
		timer := time.NewTimer(d.timeout)
		defer timer.Stop()
		late = timer.C
	}
	var ended error
	slow := false
	select {
	case <-flight:
	case <-late:
		slow = true
	case <-ctx.Done():
		ended = context.Cause(ctx)
	case <-d.o.done:
		ended = errShutdown
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slow && s.flight == flight && !s.out && d.slots[k] == s {
		s.out = true
		d.o.outage.add(errSlow)
	}
	value, err := s.answer(time.Now())
	if err != nil && ended != nil {
		err = fmt.Errorf("wait for the API server: %w", ended)
	}
	return value, err
}

// runFetch fetches k, and again if invalidate was called meanwhile, until a fetch fails. It
// stores the result and releases the waiting reads.
func (d *readCache[K, V]) runFetch(ctx context.Context, k K, s *slot[V]) {
	var value V
	var valid validity
	var err error
	d.mu.Lock()
	defer d.mu.Unlock()
	for renewals := -1; renewals != s.renewals; {
		renewals = s.renewals
		d.mu.Unlock()
		value, valid, err = d.fetch(ctx, k)
		d.mu.Lock()
		if err != nil {
			break
		}
	}
	err = checkNotFound(err)
	close(s.flight)
	s.flight, s.err, s.tried = nil, err, s.renewals
	was := s.out
	switch {
	case err == nil:
		s.value, s.known, s.until, s.next, s.out = value, true, valid.until, valid.fresh, false
		s.backoff.Reset()
	case d.missing > 0 && apierrors.IsNotFound(err):
		var none V
		s.value, s.known, s.next, s.out = none, false, time.Now().Add(d.missing), false
		s.backoff.Reset()
	default:
		now := time.Now()
		s.next = now.Add(s.backoff.Next())
		// An error that reads return is not logged in addition.
		s.out = s.usable(now) && d.slots[k] == s
	}
	switch {
	case s.out && !was:
		d.o.outage.add(err)
	case was && !s.out:
		d.o.outage.resolve()
	}
}

// invalidate marks values as stale: the next read waits for a new fetch. A value
// that cannot be fetched stays.
func (d *readCache[K, V]) invalidate(stale func(K) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, s := range d.slots {
		if stale(k) {
			s.renewals++
			s.next = time.Time{}
		}
	}
}

// retain drops the entries that are no longer referenced.
func (d *readCache[K, V]) retain(referenced func(K) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, s := range d.slots {
		if !referenced(k) {
			delete(d.slots, k)
			if s.out {
				s.out = false
				d.o.outage.drop()
			}
		}
	}
}
