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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// kernel is a growth whose notifications are made by tests.
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

func (k *kernel) unwatch(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, path)
}

func (k *kernel) notifications() <-chan struct{} { return k.nudges }

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

// running starts Run in a bubble; listings counts its checks.
func running(t *testing.T, c *container, r *Rotator, g changeNotifier) (listings func() int) {
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
	r.newNotifier = func() (changeNotifier, error) { return g, nil }
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.file.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

// TestLooked shows that AfterCheck is called after each check.
func TestLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := newContainer(t), newKernel()
		r, looked := c.rotator(5), atomic.Int32{}
		r.cfg.AfterCheck = func() { looked.Add(1) }
		looks := running(t, c, r, k)
		time.Sleep(2*maxCheckInterval + time.Minute)
		synctest.Wait()
		if got, want := int(looked.Load()), looks(); got != want || got < 3 {
			t.Errorf("AfterCheck was called %d times for %d looks", got, want)
		}
	})
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
		looks := running(t, c, c.rotator(5), noNotifier{})
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
		if c.reopened() < 12 || c.reopened() > 20 || strings.Count(out.String(), "cannot rotate container log") != c.reopened() {
			t.Errorf("tried %d times in an hour, logged %d", c.reopened(), strings.Count(out.String(), "\n"))
		}
		c.fail(nil)
		time.Sleep(5 * time.Minute)
		if got := c.files(); len(got) != 2 {
			t.Errorf("files: %q", got)
		}
	})
}

// If the agent is killed between renaming and reopening, the container has no
// log file of its name.
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
	const mega = 1 << 20
	for _, tc := range []struct {
		name             string
		max, size, grows int64
		want             time.Duration
	}{
		{"small limit", 10 * mega, 0, 0, 10 * time.Second},
		{"never looked at", 10 * mega, -1, 0, 10 * time.Second},
		{"large limit", 100 * mega, 0, 0, 100 * time.Second},
		{"large limit, nearly reached", 100 * mega, 99 * mega, 0, 10 * time.Second},
		{"above", 10 * mega, 11 * mega, 0, 10 * time.Second},
		{"huge limit", 1 << 62, 0, 0, 5 * time.Minute},
		{"as fast as expected", 10 * mega, 9 * mega, mega, 10 * time.Second},
		{"fast", 10 * mega, 0, 5 * mega, 2 * time.Second},
		{"fast, nearly reached", 10 * mega, 9 * mega, 5 * mega, time.Second},
		{"fast, above", 10 * mega, 11 * mega, 5 * mega, time.Second},
		{"very fast", 10 * mega, 0, 1 << 40, time.Second},
		{"fast, large limit", 100 * mega, 0, 5 * mega, 20 * time.Second},
		{"fast, huge limit", 1 << 62, 0, 2 * mega, 5 * time.Minute},
		{"fast for a tiny limit", mega, 0, mega / 4, 4 * time.Second},
		{"slow for a tiny limit", mega, 0, mega / 10, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{MaxSize: tc.max, Interval: 10 * time.Second}
			if got := c.untilCheck(tc.size, tc.grows); got != tc.want {
				t.Errorf("wait = %v, want %v", got, tc.want)
			}
		})
	}
	slow := Config{MaxSize: 1, Interval: 20 * time.Hour}
	if slow.bound(slow.Interval<<10) != 20*time.Hour || slow.untilCheck(0, 0) != 20*time.Hour {
		t.Errorf("waits %v and %v, want the interval", slow.bound(slow.Interval<<10), slow.untilCheck(0, 0))
	}
}

// grow appends bytes to the log.
func (c *container) grow(bytes int64) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := c.file.Stat()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.file.Truncate(info.Size() + bytes); err != nil {
		c.t.Fatal(err)
	}
}

// disk returns the total size in bytes of all files of a container's log.
func (c *container) disk() (total int64) {
	for _, name := range c.files() {
		if info, err := os.Stat(filepath.Join(filepath.Dir(c.path), name)); err == nil {
			total += info.Size()
		}
	}
	return total
}

// The log of a container that writes fast is checked when it could have reached
// the limit. Once the container stops writing, it is checked as rarely as any
// other.
func TestFastLog(t *testing.T) {
	const mega, limit, maxFiles = 1 << 20, 1 << 20, 5
	for _, tc := range []struct {
		name  string
		grows int64   // bytes in a second
		pause int     // seconds in which it writes nothing, every other second or more
		looks [2]int  // least and most in the minute that it writes
		disk  float64 // most of all its files after the first 15 s, in seconds of writing
	}{
		{"slow", limit / 20, 0, [2]int{5, 8}, 100},
		{"as fast as expected", limit / 10, 0, [2]int{5, 8}, 60},
		{"fast", limit / 4, 0, [2]int{12, 25}, 30},
		{"very fast", 100 * mega, 0, [2]int{48, 62}, 2.5},
		{"in bursts", 100 * mega, 1, [2]int{48, 62}, 3.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Local = time.UTC
				c, k := newContainer(t), newKernel()
				r := c.rotator(maxFiles)
				r.cfg.MaxSize = limit
				looks := running(t, c, r, k)
				const tick = 10 // in a second
				var most int64
				for i := range 60 * tick {
					time.Sleep(time.Second / tick)
					synctest.Wait()
					if i > 15*tick {
						most = max(most, c.disk())
					}
					if tc.pause == 0 || i/tick%(tc.pause+1) == 0 {
						c.grow(tc.grows / tick)
					}
					if got := c.files(); len(got) > maxFiles {
						t.Fatalf("files: %q", got)
					}
				}
				if got := looks(); got < tc.looks[0] || got > tc.looks[1] {
					t.Errorf("%d looks in a minute, want %v", got, tc.looks)
				}
				if seconds := float64(most) / float64(tc.grows); seconds > tc.disk {
					t.Errorf("its files had %d bytes, as much as it writes in %.1f s, want %.1f", most, seconds, tc.disk)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if got := looks(); got > 25 || k.watches(c.path) == 0 {
					t.Errorf("%d looks in two minutes after that, %d watches", got, k.watches(c.path))
				}
				time.Sleep(time.Hour)
				if got := looks(); got > 13 {
					t.Errorf("%d looks in an hour at rest", got)
				}
			})
		})
	}
}

// The growth of an idle log is measured from the kernel's notification.
func TestFastLogAfterARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := newContainer(t), newKernel()
		r := c.rotator(5)
		running(t, c, r, k)
		time.Sleep(4*time.Minute + time.Second/2)
		k.tell(c.path)
		for range 10 {
			time.Sleep(time.Second)
			synctest.Wait()
			c.grow(8 << 20)
		}
		synctest.Wait()
		time.Sleep(time.Second / 10)
		synctest.Wait()
		if got := r.logs[c.path].growthRate >> 20; got < 6 || got > 8 {
			t.Errorf("it grows by %d MiB in a second, want 8", got)
		}
	})
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
	g.unwatch(two)
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

func told(t *testing.T, g changeNotifier, want string) {
	t.Helper()
	select {
	case <-g.notifications():
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
