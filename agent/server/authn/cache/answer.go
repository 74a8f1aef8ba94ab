// Package cache caches review results of the API server: it keeps each result for a
// limited time, makes one lookup for all concurrent requests with the same key, and
// limits the number of cached results, the number of concurrent lookups and their
// duration.
//
// It has no goroutines: the goroutine of the first request makes the lookup. An expired
// result is removed when it is read, or when the cache is full.
package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Config configures a Cache.
type Config struct {
	// PositiveTTL and NegativeTTL are the TTLs of positive and negative results; 0
	// disables caching.
	PositiveTTL, NegativeTTL time.Duration
	// Size limits the cached positive and, separately, the cached negative
	// results, so that a client cannot displace positive results with keys that
	// have negative ones.
	Size int
	// Timeout limits a lookup, including its wait for a slot.
	Timeout time.Duration
	// Concurrency limits the concurrent lookups; further ones wait.
	Concurrency int
}

// Lookup makes a lookup on the API server. It must return when its context ends.
// Errors are not cached.
type Lookup[V any] func(ctx context.Context) (value V, yes bool, err error)

// ErrPanicked is the error of requests that waited for a lookup that panicked.
var ErrPanicked = errors.New("lookup panicked")

// Cache caches results. Callers share the values and must not change them. Its
// methods may be called concurrently.
type Cache[V any] struct {
	config Config
	slots  chan struct{}

	mu      sync.Mutex
	results map[bool]map[Key]entry[V] // by whether they are positive
	flights map[Key]*flight[V]
}

type entry[V any] struct {
	value V
	until time.Time // on the monotonic clock: setting the clock has no effect
}

// flight is a lookup in flight. Its result may be read after done is closed.
type flight[V any] struct {
	done  chan struct{}
	value V
	yes   bool
	err   error
}

// New returns a Cache. Size, Timeout and Concurrency must be positive. PositiveTTL and
// NegativeTTL must not be negative.
func New[V any](c Config) *Cache[V] {
	return &Cache[V]{
		config: c, slots: make(chan struct{}, c.Concurrency),
		results: map[bool]map[Key]entry[V]{true: {}, false: {}}, flights: map[Key]*flight[V]{},
	}
}

// GetCached returns the cached result of key; ok is false if there is none.
func (c *Cache[V]) GetCached(key Key) (value V, yes, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.getCached(key, time.Now())
}

// Get returns the cached result of key, or makes a lookup with ask. While a lookup of
// the key is in flight, further calls wait for its result, until their ctx ends. The call
// that makes the lookup does not return when its ctx ends, but after at most Timeout, or when
// the base of ctx ends (WithBase): on a slow link, a client with a short timeout would never
// get a result otherwise.
func (c *Cache[V]) Get(ctx context.Context, key Key, ask Lookup[V]) (value V, yes bool, err error) {
	c.mu.Lock()
	if value, yes, ok := c.getCached(key, time.Now()); ok {
		c.mu.Unlock()
		return value, yes, nil
	}
	q := c.flights[key]
	if q == nil {
		q = &flight[V]{done: make(chan struct{}), err: ErrPanicked}
		c.flights[key] = q
		c.mu.Unlock()
		c.lookup(ctx, key, q, ask)
		return q.value, q.yes, q.err
	}
	c.mu.Unlock()
	select {
	case <-q.done:
		return q.value, q.yes, q.err
	case <-ctx.Done():
		return value, false, fmt.Errorf("wait for the lookup of another request: %w", context.Cause(ctx))
	}
}

type baseKey struct{}

// WithBase returns a copy of ctx for Get, whose lookups end when base ends.
func WithBase(ctx, base context.Context) context.Context {
	return context.WithValue(ctx, baseKey{}, base)
}

// lookup makes the lookup and stores its result. It releases the waiting calls even if the
// lookup panics.
func (c *Cache[V]) lookup(ctx context.Context, key Key, q *flight[V], ask Lookup[V]) {
	defer func() {
		c.mu.Lock()
		delete(c.flights, key)
		if q.err == nil {
			c.keep(key, q, time.Now())
		}
		c.mu.Unlock()
		close(q.done)
	}()
	late := fmt.Errorf("no response within %v: %w", c.config.Timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), c.config.Timeout, late)
	defer cancel()
	if base, ok := ctx.Value(baseKey{}).(context.Context); ok {
		defer context.AfterFunc(base, cancel)()
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		q.err = fmt.Errorf("%w (%d other lookups in flight)", context.Cause(ctx), c.config.Concurrency)
		return
	}
	value, yes, err := ask(ctx)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = late
	}
	q.value, q.yes, q.err = value, yes, err
}

func (c *Cache[V]) getCached(key Key, now time.Time) (value V, yes, ok bool) {
	for _, yes := range []bool{true, false} {
		answers := c.results[yes]
		if k, ok := answers[key]; ok {
			if now.Before(k.until) {
				return k.value, yes, true
			}
			delete(answers, key)
		}
	}
	return value, false, false
}

// keep stores a result. If the cache is full, it removes the expired results, or else
// the result that expires first.
func (c *Cache[V]) keep(key Key, q *flight[V], now time.Time) {
	life := c.config.NegativeTTL
	if q.yes {
		life = c.config.PositiveTTL
	}
	if life == 0 {
		return
	}
	answers := c.results[q.yes]
	if len(answers) >= c.config.Size {
		var first Key
		var end time.Time
		for at, k := range answers {
			if !now.Before(k.until) {
				delete(answers, at)
			} else if end.IsZero() || k.until.Before(end) {
				first, end = at, k.until
			}
		}
		if len(answers) >= c.config.Size {
			delete(answers, first)
		}
	}
	answers[key] = entry[V]{q.value, now.Add(life)}
}
