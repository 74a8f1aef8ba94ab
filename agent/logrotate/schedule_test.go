package logrotate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// kernel is a growth that tests tell what has grown.
type kernel struct {
	mu      sync.Mutex
	watched map[string]int
	changed []string
	nudges  chan struct{}
}

func newKernel() *kernel {
	return &kernel{watched: map[string]int{}, changed: []string{}, nudges: make(chan struct{}, 1)}
}

func (k *kernel) watch(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched[path]++
	return true
}

func (k *kernel) forget(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, path)
}

func (k *kernel) grown() <-chan struct{} { return k.nudges }

func (k *kernel) take() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.changed
	k.changed = []string{}
	return out
}

func (k *kernel) close() {}

func (k *kernel) tell(path string) {
	k.mu.Lock()
	k.changed = append(k.changed, path)
	k.mu.Unlock()
	k.nudges <- struct{}{}
}

func (k *kernel) watches(path string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.watched[path]
}

// running starts Run in a bubble; listings counts how often it looked.
func running(t *testing.T, c *container, r *Rotator, g growth) (listings func() int) {
	t.Helper()
	var mu sync.Mutex
	count := 0
	logs := r.cfg.Containers
	r.cfg.Containers = func() []Log {
		mu.Lock()
		defer mu.Unlock()
		count++
		return logs()
	}
	r.growth = func() (growth, error) { return g, nil }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		out := count
		count = 0
		return out
	}
}

func grow(t *testing.T, c *container, size int64) {
	t.Helper()
	if err := c.file.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

func TestLogAtRestIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := newContainer(t), newKernel()
		looks := running(t, c, c.rotator(5), k)
		time.Sleep(time.Minute)
		if got := looks(); got != 2 || k.watches(c.path) != 1 {
			t.Fatalf("%d looks in the first minute, %d watches", got, k.watches(c.path))
		}
		time.Sleep(time.Hour)
		if got := looks(); got != 12 {
			t.Errorf("%d looks in an hour at rest, want one in five minutes", got)
		}
		// It grows slowly: seldom; then too large: rotated within 10 s.
		c.write(1)
		k.tell(c.path)
		time.Sleep(11 * time.Second)
		if got := looks(); got != 2 {
			t.Errorf("%d looks after a line, want one at once and one later", got)
		}
		grow(t, c, 10<<20)
		time.Sleep(15 * time.Second)
		if c.reopened() != 1 {
			t.Errorf("reopened %d times", c.reopened())
		}
	})
}

func TestWithoutEventsLogsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContainer(t)
		looks := running(t, c, c.rotator(5), blind{})
		time.Sleep(5 * time.Minute)
		if got := looks(); got < 25 || got > 32 {
			t.Errorf("%d looks in five minutes", got)
		}
		grow(t, c, 10<<20)
		time.Sleep(15 * time.Second)
		if c.reopened() != 1 {
			t.Errorf("reopened %d times", c.reopened())
		}
	})
}

func TestNewContainerIsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := newContainer(t), newKernel()
		r := c.rotator(5)
		changed := func() {}
		r.cfg.Notify = func(slot chan<- struct{}) func() {
			changed = func() {
				select {
				case slot <- struct{}{}:
				default:
				}
			}
			return func() {}
		}
		var mu sync.Mutex
		var logs []Log
		r.cfg.Containers = func() []Log {
			mu.Lock()
			defer mu.Unlock()
			return logs
		}
		running(t, c, r, k)
		time.Sleep(time.Second)
		grow(t, c, 11<<20)
		mu.Lock()
		logs = []Log{{ID: "id", Path: c.path}}
		mu.Unlock()
		changed()
		changed()
		synctest.Wait()
		if c.reopened() != 1 {
			t.Errorf("reopened %d times", c.reopened())
		}
		time.Sleep(time.Minute)
		mu.Lock()
		logs = nil
		mu.Unlock()
		changed()
		synctest.Wait()
		if k.watches(c.path) != 0 || len(r.logs) != 0 {
			t.Errorf("a container that ended is still watched")
		}
	})
}

func TestFailuresAreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContainer(t)
		c.fail(errors.New("refused"))
		grow(t, c, 11<<20)
		r := c.rotator(5)
		var out bytes.Buffer
		r.cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
		running(t, c, r, newKernel())
		time.Sleep(time.Hour)
		synctest.Wait()
		if c.reopened() < 12 || c.reopened() > 20 || strings.Count(out.String(), "cannot be rotated") != c.reopened() {
			t.Errorf("tried %d times in an hour, logged %d", c.reopened(), strings.Count(out.String(), "\n"))
		}
		c.fail(nil)
		time.Sleep(5 * time.Minute)
		if got := c.files(); len(got) != 2 {
			t.Errorf("files: %q", got)
		}
	})
}

// An agent that was killed between renaming and reopening leaves a container
// without a log.
func TestMissingLogIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContainer(t)
		c.write(5)
		move(t, c.path, c.path+".20260101-000000")
		running(t, c, c.rotator(5), newKernel())
		synctest.Wait()
		c.write(5)
		if got := c.lines(); c.reopened() != 1 || got != c.wanted(0) {
			t.Errorf("reopened %d times, lines %q", c.reopened(), got)
		}
	})
}

func TestNegativeSizeIsNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContainer(t)
		r := c.rotator(5)
		r.cfg.MaxSize = -1
		grow(t, c, 100<<20)
		looks := running(t, c, r, newKernel())
		time.Sleep(time.Hour)
		if looks() != 0 || c.reopened() != 0 {
			t.Errorf("reopened %d times", c.reopened())
		}
	})
}

func TestWaits(t *testing.T) {
	for _, tc := range []struct {
		name      string
		max, size int64
		want      time.Duration
	}{
		{"small limit", 10 << 20, 0, 10 * time.Second},
		{"never looked at", 10 << 20, -1, 10 * time.Second},
		{"large limit", 100 << 20, 0, 100 * time.Second},
		{"large limit, nearly reached", 100 << 20, 99 << 20, 10 * time.Second},
		{"above", 10 << 20, 11 << 20, 10 * time.Second},
		{"huge limit", 1 << 62, 0, 5 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{MaxSize: tc.max, Interval: 10 * time.Second}
			if got := c.wait(tc.size); got != tc.want {
				t.Errorf("wait = %v, want %v", got, tc.want)
			}
		})
	}
	slow := Config{MaxSize: 1, Interval: 20 * time.Hour}
	if slow.retry(100) != 20*time.Hour || slow.wait(0) != 20*time.Hour {
		t.Errorf("waits %v and %v, want the interval", slow.retry(100), slow.wait(0))
	}
}

// Inotify has no virtual time, so this waits for real events.
func TestKernelTellsOnce(t *testing.T) {
	g, err := newInotify()
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	write(t, one, "")
	write(t, two, "")
	if !g.watch(one) || !g.watch(two) || !g.watch(two) || g.watch(filepath.Join(dir, "none")) {
		t.Fatal("watches not as they should be")
	}
	g.forget(two)
	for range 3 {
		add(t, two)
		add(t, one)
	}
	told(t, g, one)
	if !g.watch(one) {
		t.Fatal("no second watch")
	}
	add(t, one)
	told(t, g, one)
	if !g.watch(one) {
		t.Fatal("no third watch")
	}
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	told(t, g, one)
	if n := g.(*inotify); len(n.paths) != 0 || len(n.watches) != 0 {
		t.Errorf("left over: %v %v", n.paths, n.watches)
	}
}

func told(t *testing.T, g growth, want string) {
	t.Helper()
	select {
	case <-g.grown():
	case <-time.After(10 * time.Second):
		t.Fatal("not told")
	}
	if got := g.take(); len(got) != 1 || got[0] != want {
		t.Errorf("told of %q", got)
	}
}

func add(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
}
