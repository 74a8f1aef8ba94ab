package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var bounds = Config{PositiveTTL: 2 * time.Minute, NegativeTTL: 10 * time.Second, Size: 4, Timeout: 10 * time.Second, Concurrency: 2}

func newCache(t *testing.T, c Config) *Cache[string] {
	t.Helper()
	return New[string](c)
}

// asker is an Ask func that counts its calls.
type asker struct {
	asked atomic.Int64
	takes time.Duration
	yes   bool
	err   error
}

func (a *asker) ask(ctx context.Context) (string, bool, error) {
	n := a.asked.Add(1)
	if a.takes > 0 {
		select {
		case <-time.After(a.takes):
		case <-ctx.Done():
			return "", false, fmt.Errorf("ask: %w", ctx.Err())
		}
	}
	return fmt.Sprintf("answer %d", n), a.yes, a.err
}

// get checks the result of Get, and the number of lookups so far.
func get(t *testing.T, c *Cache[string], key string, a *asker, asked int64) {
	t.Helper()
	value, yes, err := c.Get(t.Context(), Key([]byte(fmt.Sprintf("%-32s", key))), a.ask)
	if err != nil || yes != a.yes || a.asked.Load() != asked || value != fmt.Sprintf("answer %d", asked) {
		t.Errorf("%s: %q, %v, %v after %d questions, want %d", key, value, yes, err, a.asked.Load(), asked)
	}
}

func TestKeepsEachKindForItsTime(t *testing.T) {
	for _, yes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			life := bounds.NegativeTTL
			if yes {
				life = bounds.PositiveTTL
			}
			c, a := newCache(t, bounds), &asker{yes: yes}
			get(t, c, "k", a, 1)
			time.Sleep(life - 1)
			get(t, c, "k", a, 1)
			time.Sleep(time.Nanosecond)
			get(t, c, "k", a, 2)
		})
	}
}

func TestKeepsNothingWithoutATime(t *testing.T) {
	none := bounds
	none.PositiveTTL, none.NegativeTTL = 0, 0
	for _, yes := range []bool{true, false} {
		c, a := newCache(t, none), &asker{yes: yes}
		get(t, c, "k", a, 1)
		get(t, c, "k", a, 2)
	}
}

func TestAFailureIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newCache(t, bounds), &asker{yes: true, err: errors.New("refused")}
		for range 2 {
			if _, _, err := c.Get(t.Context(), Key{}, a.ask); !errors.Is(err, a.err) {
				t.Errorf("error %v", err)
			}
		}
		if _, _, ok := c.GetCached(Key{}); ok || a.asked.Load() != 2 {
			t.Errorf("kept %v after %d questions", ok, a.asked.Load())
		}
	})
}

func TestAskedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newCache(t, bounds), &asker{yes: true, takes: time.Second}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if value, yes, err := c.Get(t.Context(), Key{}, a.ask); value != "answer 1" || !yes || err != nil {
					t.Errorf("%q, %v, %v", value, yes, err)
				}
			})
		}
		all.Wait()
		if a.asked.Load() != 1 {
			t.Errorf("%d questions", a.asked.Load())
		}
	})
}

func TestWhoGivesUpDoesNotEndTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newCache(t, bounds), &asker{yes: true, takes: 5 * time.Second}
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := c.Get(first, Key{}, a.ask); err != nil {
				t.Errorf("first: %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if _, _, err := c.Get(first, Key{}, a.ask); !errors.Is(err, context.Canceled) {
				t.Errorf("one who waited and left: %v", err)
			}
		})
		all.Go(func() {
			if value, _, err := c.Get(t.Context(), Key{}, a.ask); value != "answer 1" || err != nil {
				t.Errorf("one who waited: %q, %v", value, err)
			}
		})
		synctest.Wait()
		leave()
		all.Wait()
		if a.asked.Load() != 1 {
			t.Errorf("%d questions", a.asked.Load())
		}
	})
}

func TestNoQuestionTakesLongerThanItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newCache(t, bounds), &asker{yes: true, takes: time.Hour}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 5 { // two have their turn, three wait for one
			all.Go(func() {
				if _, _, err := c.Get(t.Context(), Key{byte(i)}, a.ask); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
			})
		}
		synctest.Wait()
		if a.asked.Load() != 2 {
			t.Errorf("%d questions at once, want 2", a.asked.Load())
		}
		all.Wait()
		if took := time.Since(start); took != bounds.Timeout {
			t.Errorf("took %v", took)
		}
		// A timeout poisons nothing, and gives the turns back.
		good := &asker{yes: true}
		get(t, c, "k", good, 1)
		if _, _, err := c.Get(t.Context(), Key{}, good.ask); err != nil {
			t.Errorf("after a timeout: %v", err)
		}
	})
}

func TestLookupsEndWithTheirBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := newCache(t, bounds), &asker{yes: true, takes: time.Hour}
		base, end := context.WithCancel(t.Context())
		start := time.Now()
		var all sync.WaitGroup
		for i := range 3 { // two have a slot, one waits for one
			all.Go(func() {
				if _, _, err := c.Get(WithBase(t.Context(), base), Key{byte(i)}, a.ask); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
			})
		}
		time.Sleep(time.Second)
		end()
		all.Wait()
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestAPanicLetsTheOthersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, bounds)
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _, _ = c.Get(t.Context(), Key{}, func(context.Context) (string, bool, error) {
				time.Sleep(time.Second)
				panic("bad answer")
			})
		})
		synctest.Wait()
		if _, _, err := c.Get(t.Context(), Key{}, (&asker{}).ask); !errors.Is(err, ErrPanicked) {
			t.Errorf("error %v", err)
		}
		all.Wait()
		get(t, c, "k", &asker{yes: true}, 1)
	})
}

func TestBoundedKindByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, yes, no := newCache(t, bounds), &asker{yes: true}, &asker{}
		for i := range 4 {
			get(t, c, fmt.Sprint("yes", i), yes, int64(i)+1)
			time.Sleep(time.Second)
		}
		for i := range 1000 {
			get(t, c, fmt.Sprint("no", i), no, int64(i)+1)
		}
		if len(c.results[true]) != 4 || len(c.results[false]) != 4 {
			t.Errorf("%d yes, %d no", len(c.results[true]), len(c.results[false]))
		}
		// One more takes the place of the oldest.
		get(t, c, "yes4", yes, 5)
		for i, want := range []bool{false, true, true, true, true} {
			if _, _, ok := c.GetCached(Key([]byte(fmt.Sprintf("%-32s", fmt.Sprint("yes", i))))); ok != want {
				t.Errorf("yes%d is kept: %v", i, ok)
			}
		}
		// What is too old goes first, all of it.
		time.Sleep(bounds.PositiveTTL)
		get(t, c, "yes5", yes, 6)
		if len(c.results[true]) != 1 {
			t.Errorf("%d yes after all were too old", len(c.results[true]))
		}
	})
}

func TestKeys(t *testing.T) {
	h := NewHasher()
	if first, again := h.Key("a", "b"), h.Key("a", "b"); first != again {
		t.Error("one question has two keys")
	}
	seen := map[Key][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"a", "b", ""}} {
		key := h.Key(parts...)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have one key", parts, other)
		}
		seen[key] = parts
	}
	if h.Key("a") == NewHasher().Key("a") {
		t.Error("two hashers make the same keys")
	}
}

func BenchmarkRecall(b *testing.B) {
	c := New[string](bounds)
	a, h := &asker{yes: true}, NewHasher()
	token := string(make([]byte, 1100)) // of a service account
	for b.Loop() {
		if _, _, err := c.Get(b.Context(), h.Key(token), a.ask); err != nil {
			b.Fatal(err)
		}
	}
}
