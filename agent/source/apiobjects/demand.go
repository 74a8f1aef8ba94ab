package apiobjects

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// Times of what is fetched on demand.
const (
	// patience is how long a read waits for the server where it could answer
	// what was last known.
	patience = 5 * time.Second
	// recently is how long an answer counts that will soon be another, such as
	// that there is no such object.
	recently = 5 * time.Second
)

// validity is how long a fetched value counts.
type validity struct {
	// fresh is until when nobody asks for another.
	fresh time.Time
	// until is when it is of no use any more; zero is never.
	until time.Time
}

func validFor(d time.Duration) validity { return validity{fresh: time.Now().Add(d)} }

// demand answers things that are fetched when they are read, and again at the
// first read after they got old. However many read one thing, it is fetched
// once, by Objects.Run. While that fails, what was last known is answered if
// it is still valid; a failure is asked about again with growing waits.
type demand[K comparable, V any] struct {
	o        *Objects
	fetch    func(context.Context, K) (V, validity, error)
	patience time.Duration // how long a read waits that has an answer, unless there is an outage
	missing  time.Duration // how long NotFound counts as the answer; zero is as any error

	mu    sync.Mutex
	slots map[K]*slot[V]
}

// slot is one thing.
type slot[V any] struct {
	value   V
	known   bool            // there is a value
	until   time.Time       // when it ends; zero is never
	err     error           // of the last attempt
	next    time.Time       // no attempt before
	again   <-chan struct{} // closed when the server is there again
	flight  chan struct{}
	backoff apiclient.Backoff
	out     bool // counted in the outage: an old value stands in for a failure
	// renewals counts the calls of renew: what was asked for before the last one
	// is not new enough.
	renewals int
	tried    int // the renewals that an attempt was made for
}

func newDemand[K comparable, V any](o *Objects, fetch func(context.Context, K) (V, validity, error), patience, missing time.Duration) *demand[K, V] {
	return &demand[K, V]{o: o, fetch: fetch, patience: patience, missing: missing, slots: make(map[K]*slot[V])}
}

// usable says whether the value may be answered.
func (s *slot[V]) usable(now time.Time) bool {
	return s.known && (s.until.IsZero() || now.Before(s.until))
}

// recovered says that the server is there again after an attempt failed.
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

// answer is what is known now.
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

// read answers what k is, waiting for the server if need be.
func (d *demand[K, V]) read(ctx context.Context, k K) (V, error) {
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
		d.o.start(func(ctx context.Context) { d.fly(ctx, k, s) })
	}
	flight, usable, tried := s.flight, s.usable(now), s.tried == s.renewals
	value, err := s.answer(now)
	d.mu.Unlock()
	if flight == nil || usable && (d.patience == 0 || tried && d.o.outage.on()) {
		return value, err
	}
	return d.wait(ctx, k, s, flight, usable)
}

// wait answers what an attempt gave. Where there is a usable value it waits
// only so long, and nobody waits for the server again before it has answered.
func (d *demand[K, V]) wait(ctx context.Context, k K, s *slot[V], flight chan struct{}, usable bool) (V, error) {
	var late <-chan time.Time
	if usable {
		timer := time.NewTimer(d.patience)
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
		ended = errEnded
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slow && s.flight == flight && !s.out && d.slots[k] == s {
		s.out = true
		d.o.outage.begins(errSlow)
	}
	value, err := s.answer(time.Now())
	if err != nil && ended != nil {
		err = fmt.Errorf("wait for the API server: %w", ended)
	}
	return value, err
}

// fly makes one attempt.
func (d *demand[K, V]) fly(ctx context.Context, k K, s *slot[V]) {
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
	err = genuine(err)
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
		// An error that a read is answered is not logged too.
		s.out = s.usable(now) && d.slots[k] == s
	}
	switch {
	case s.out && !was:
		d.o.outage.begins(err)
	case was && !s.out:
		d.o.outage.ends()
	}
}

// renew has what is read from now on fetched anew, before it is answered. What
// cannot be fetched stays as it is.
func (d *demand[K, V]) renew(stale func(K) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, s := range d.slots {
		if stale(k) {
			s.renewals++
			s.next = time.Time{}
		}
	}
}

// keep forgets what is not wanted any more.
func (d *demand[K, V]) keep(wanted func(K) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, s := range d.slots {
		if !wanted(k) {
			delete(d.slots, k)
			if s.out {
				s.out = false
				d.o.outage.leaves()
			}
		}
	}
}
