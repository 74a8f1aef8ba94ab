// Package cache owns the API server's answers about those who call the node:
// it keeps each for a while, asks once for all who want to know the same at
// the same time, and bounds how many are kept, how many are asked for at once
// and how long that may take.
//
// Nothing runs here by itself: a question is asked by the goroutine of the
// first request that wants to know, and what is too old goes when somebody
// looks at it or needs its place.
package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Config bounds a Cache.
type Config struct {
	// Yes and No are how long answers of each kind are kept, from when they
	// came; 0 keeps none.
	Yes, No time.Duration
	// Size is how many answers of each kind are kept. Kinds have places of
	// their own: whoever makes up questions that get a No takes no place of
	// a Yes.
	Size int
	// Timeout is how long a question may take, with the wait for a turn.
	Timeout time.Duration
	// AtOnce is how many questions are asked at the same time; others wait
	// for their turn.
	AtOnce int
}

// Ask asks the API server. It must end with its context. An error is no
// answer, and is not kept.
type Ask[V any] func(ctx context.Context) (value V, yes bool, err error)

// ErrBroken is what those get who waited for a question whose asking
// panicked.
var ErrBroken = errors.New("the question was broken off")

// Cache keeps answers. Values are handed to everybody who asks and must not
// be changed. All methods may be called at once.
type Cache[V any] struct {
	config Config
	turns  chan struct{}

	mu      sync.Mutex
	yes, no map[Key]kept[V]
	asked   map[Key]*question[V]
}

type kept[V any] struct {
	value V
	until time.Time // of the monotonic clock: a clock that is set changes nothing
}

// question is one that is being asked. What it came to may be read when done
// is closed.
type question[V any] struct {
	done  chan struct{}
	value V
	yes   bool
	err   error
}

// New makes a Cache; all bounds but Yes and No must be more than 0.
func New[V any](c Config) (*Cache[V], error) {
	if c.Size <= 0 || c.AtOnce <= 0 || c.Timeout <= 0 || c.Yes < 0 || c.No < 0 {
		return nil, fmt.Errorf("keep answers: the bounds %+v must be more than 0, and times not less", c)
	}
	return &Cache[V]{
		config: c, turns: make(chan struct{}, c.AtOnce),
		yes: map[Key]kept[V]{}, no: map[Key]kept[V]{}, asked: map[Key]*question[V]{},
	}, nil
}

// Recall answers from what is kept, and whether there is an answer.
func (c *Cache[V]) Recall(key Key) (value V, yes, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recall(key, time.Now())
}

// Get answers from what is kept, or asks. Whoever comes while a question is
// being asked waits for its answer, until ctx ends. The question itself goes
// on when the request that began it is given up, up to the Timeout: on a slow
// link a client with little patience would never get its answer otherwise.
func (c *Cache[V]) Get(ctx context.Context, key Key, ask Ask[V]) (value V, yes bool, err error) {
	c.mu.Lock()
	if value, yes, ok := c.recall(key, time.Now()); ok {
		c.mu.Unlock()
		return value, yes, nil
	}
	q := c.asked[key]
	if q == nil {
		q = &question[V]{done: make(chan struct{}), err: ErrBroken}
		c.asked[key] = q
		c.mu.Unlock()
		c.ask(ctx, key, q, ask)
		return q.value, q.yes, q.err
	}
	c.mu.Unlock()
	select {
	case <-q.done:
		return q.value, q.yes, q.err
	case <-ctx.Done():
		return value, false, fmt.Errorf("wait for an answer that another request asked for: %w", context.Cause(ctx))
	}
}

// ask asks, and then lets those who wait go on, also when ask panics.
func (c *Cache[V]) ask(ctx context.Context, key Key, q *question[V], ask Ask[V]) {
	defer func() {
		c.mu.Lock()
		delete(c.asked, key)
		if q.err == nil {
			c.keep(key, q, time.Now())
		}
		c.mu.Unlock()
		close(q.done)
	}()
	late := fmt.Errorf("no answer within %v: %w", c.config.Timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), c.config.Timeout, late)
	defer cancel()
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		q.err = fmt.Errorf("%w (%d other questions were before it)", late, c.config.AtOnce)
		return
	}
	value, yes, err := ask(ctx)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = late
	}
	q.value, q.yes, q.err = value, yes, err
}

func (c *Cache[V]) recall(key Key, now time.Time) (value V, yes, ok bool) {
	for _, yes := range []bool{true, false} {
		answers := c.of(yes)
		if k, ok := answers[key]; ok {
			if now.Before(k.until) {
				return k.value, yes, true
			}
			delete(answers, key)
		}
	}
	return value, false, false
}

func (c *Cache[V]) of(yes bool) map[Key]kept[V] {
	if yes {
		return c.yes
	}
	return c.no
}

// keep keeps an answer, in place of what is too old or else of what has the
// least time left.
func (c *Cache[V]) keep(key Key, q *question[V], now time.Time) {
	life := c.config.No
	if q.yes {
		life = c.config.Yes
	}
	if life == 0 {
		return
	}
	answers := c.of(q.yes)
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
	answers[key] = kept[V]{q.value, now.Add(life)}
}
