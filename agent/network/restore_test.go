package network

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/wait"
)

// TestDeletedFilesAreRestored deletes the files that the runtime needs for a pod's
// network.
func TestDeletedFilesAreRestored(t *testing.T) {
	for name, victim := range map[string]func(l *lab, plugins string) (gone, back string){
		"configuration": func(l *lab, _ string) (string, string) { path := filepath.Join(l.folder, FileName); return path, path },
		"its folder":    func(l *lab, _ string) (string, string) { return l.folder, filepath.Join(l.folder, FileName) },
		"plugin": func(_ *lab, plugins string) (string, string) {
			path := filepath.Join(plugins, Plugin)
			return path, path
		},
		"loopback": func(_ *lab, plugins string) (string, string) {
			path := filepath.Join(plugins, "loopback")
			return path, path
		},
		"plugins' folder": func(_ *lab, plugins string) (string, string) { return plugins, filepath.Join(plugins, Plugin) },
	} {
		t.Run(name, func(t *testing.T) {
			plugins := filepath.Join(t.TempDir(), "bin")
			kernel := &counting{watcher: newWatcher()}
			l := newLab(t, func(c *Config) {
				c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
				c.Settings.PluginFolder = plugins
				c.Info = func(context.Context) (container.Info, error) { return container.Info{CallsLoopback: true}, nil }
			})
			l.files = kernel
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			await(t, "both folders are watched", func() bool {
				return kernel.placed.Load() == 2
			})
			gone, back := victim(l, plugins)
			for range 2 { // the second reconcile of the start restores the first deletion, too
				if err := os.RemoveAll(gone); err != nil {
					t.Fatal(err)
				}
				await(t, back+" is there again", func() bool { _, err := os.Lstat(back); return err == nil })
			}
		})
	}
}

// await waits for a short time, and fails after two minutes: the periodic reconcile
// comes after ten.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 12_000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it does not come true that %s", what)
}

// counting is a watcher that counts the folders that it watches.
type counting struct {
	watcher
	placed atomic.Int32
}

func (c *counting) Set(folders ...string) (bool, error) {
	fresh, err := c.watcher.Set(folders...)
	if err == nil {
		c.placed.Store(int32(len(folders)))
	}
	return fresh, err
}

// teller is a watcher with changes from the test.
type teller struct {
	changed wait.Wakeup

	mu      sync.Mutex
	changes filewatch.Changes
	placed  []string
	fail    error
}

func newTeller(fail error) *teller { return &teller{changed: wait.NewWakeup(), fail: fail} }

func (w *teller) change(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changes.Names == nil {
		w.changes = filewatch.Changes{Any: true, Names: make(map[string]struct{})}
	}
	w.changes.Names[path] = struct{}{}
	w.changed.Set()
}

func (w *teller) Changed() <-chan struct{} { return w.changed }

func (w *teller) Take() (changes filewatch.Changes, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changes, w.changes = w.changes, filewatch.Changes{}
	return changes, nil
}

func (w *teller) Set(folders ...string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placed = slices.Clone(folders)
	return false, w.fail
}

func (w *teller) Close() {}

// TestRestoreSparesTheDisk deletes the configuration whenever it exists, for an
// hour.
func TestRestoreSparesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTeller(nil)
		l := newLab(t, func(c *Config) { c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")} })
		l.files = w
		path := filepath.Join(l.folder, FileName)
		remove := func() bool {
			if err := os.Remove(path); err != nil {
				return false
			}
			w.change(path)
			return true
		}
		l.run(t, func() {
			removed := 0
			for range 36_000 {
				if time.Sleep(100 * time.Millisecond); remove() {
					removed++
				}
			}
			if removed < 10 || removed > 25 {
				t.Errorf("the file was written %d times in an hour", removed)
			}
			time.Sleep(2 * resyncInterval)
			looks := l.shelf.looks()
			w.change(path) // as it should be
			w.change(filepath.Join(l.folder, "10-other.conflist"))
			time.Sleep(minSyncInterval)
			if synctest.Wait(); l.shelf.looks() != looks {
				t.Error("a file that is as it should be is looked at")
			}
			if !remove() {
				t.Fatal("the file was not restored")
			}
			time.Sleep(minSyncInterval)
			if synctest.Wait(); l.written(t) == "" {
				t.Error("after ten minutes of peace the file is not restored at once")
			}
		})
	})
}

// TestDeletedFileKeepsNetworks deletes the file while the API server is away and
// a pod has an address of an earlier network.
func TestDeletedFileKeepsNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *lab
		asked := 0
		l = newLab(t, func(c *Config) {
			c.Refresh = func(context.Context) error {
				if asked++; asked > 1 {
					return errors.New("no route")
				}
				l.Assigned([]string{"10.244.1.0/24"})
				return nil
			}
		})
		l.run(t, func() {
			l.shelf.hold(entry("alive", "10.244.1.9", time.Hour))
			l.Assigned([]string{"10.244.7.0/24"})
			l.resync()
			if err := os.Remove(filepath.Join(l.folder, FileName)); err != nil {
				t.Fatal(err)
			}
			if l.resync(); l.written(t) != "pods0 10.244.7.0/24 kept 10.244.1.0/24" {
				t.Errorf("configuration %q", l.written(t))
			}
		})
	})
}

// TestFilesOfOthersAreNotWatched checks which modes watch files.
func TestFilesOfOthersAreNotWatched(t *testing.T) {
	for mode, want := range map[string]int{config.NetworkBridge: 2, config.NetworkHost: 2, config.NetworkCNI: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newTeller(errors.New("no inotify"))
			l := newLab(t, func(c *Config) {
				c.Settings.Mode, c.Networks = mode, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			})
			l.files = w
			l.run(t, func() {
				l.resync()
				if len(w.placed) != want {
					t.Errorf("%s: watched are %q", mode, w.placed)
				}
				if n := strings.Count(l.log.String(), "cannot watch network files"); n != 1 {
					t.Errorf("%s: the log told %d times", mode, n)
				}
			})
		})
	}
}
