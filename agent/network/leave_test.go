package network

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/net/cni"
)

// after runs a Network over the state that another one has left.
func (l *lab) after(t *testing.T, change func(*Config), do func(l *lab, dismantled func() []string)) {
	t.Helper()
	var names []string
	next := newLab(t, func(c *Config) {
		c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
		c.Settings.ConfigFolder = l.folder
		c.Teardown = func(bridge string) error { names = append(names, bridge); return nil }
		change(c)
	})
	next.folder, next.shelf.has = l.folder, l.shelf.has
	next.run(t, func() { do(next, func() []string { return names }) })
	l.shelf.has = next.shelf.has
}

// TestLeave changes the mode of a board with pods, and changes it back.
func TestLeave(t *testing.T) {
	mode := func(mode string) func(*Config) { return func(c *Config) { c.Settings.Mode = mode } }
	for _, to := range []string{config.NetworkHost, config.NetworkCNI} {
		t.Run(to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, nil)
				l.after(t, mode(""), func(l *lab, dismantled func() []string) {
					if l.written(t) != "pods0 10.1.0.0/24" || dismantled() != nil {
						t.Errorf("configuration %q, dismantled %q", l.written(t), dismantled())
					}
				})
				l.shelf.hold(entry("alive", "10.1.0.9", time.Hour), entry("dead", "10.1.0.3", time.Hour))
				want := map[string]string{config.NetworkHost: "pods0 refuses"}[to]
				l.after(t, mode(to), func(l *lab, dismantled func() []string) {
					time.Sleep(minCollectAge)
					l.resync()
					if l.written(t) != want || dismantled() != nil || len(l.shelf.has) != 1 {
						t.Errorf("configuration %q, dismantled %q, pods %+v", l.written(t), dismantled(), l.shelf.has)
					}
					l.shelf.hold()
					l.resync()
					l.resync()
					if !slices.Equal(dismantled(), []string{"pods0"}) || l.shelf.looks() != 0 || l.shelf.closed != len(l.shelf.made) {
						t.Errorf("dismantled %q, pods' network %+v", dismantled(), l.shelf)
					}
				})
				l.after(t, mode(""), func(l *lab, dismantled func() []string) {
					if l.written(t) != "pods0 10.1.0.0/24" || dismantled() != nil {
						t.Errorf("configuration %q, dismantled %q", l.written(t), dismantled())
					}
					// Somebody else's network comes, and goes, and so again.
					theirs := filepath.Join(l.folder, "05-theirs.conf")
					for n := range 2 {
						if err := os.WriteFile(theirs, []byte("{}"), 0o600); err != nil {
							t.Fatal(err)
						}
						l.resync()
						if len(dismantled()) != n+1 || l.written(t) != "" {
							t.Errorf("configuration %q, dismantled %q", l.written(t), dismantled())
						}
						if data, err := os.ReadFile(theirs); err != nil || string(data) != "{}" {
							t.Errorf("theirs is %q, %v", data, err)
						}
						if err := os.Remove(theirs); err != nil {
							t.Fatal(err)
						}
						l.resync()
						if l.written(t) != "pods0 10.1.0.0/24" {
							t.Errorf("configuration %q", l.written(t))
						}
					}
				})
			})
		})
	}
}

func TestLeaveNotYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := false
		newLab(t, nil).after(t, func(c *Config) {
			c.Settings.Mode = config.NetworkCNI
			c.Containers = func(context.Context) ([]string, bool) { return nil, told }
		}, func(l *lab, dismantled func() []string) {
			l.resync()
			if dismantled() != nil {
				t.Error("dismantled while the runtime does not tell")
			}
			told = true
			l.resync()
			if len(dismantled()) != 1 || l.Problem() != "" {
				t.Errorf("dismantled %q, problem %q", dismantled(), l.Problem())
			}
		})
		for _, fault := range []func(*Config){
			func(c *Config) { c.Teardown = func(string) error { return errors.New("no kernel") } },
			func(c *Config) { c.Pods = func(cni.Config) (Pods, error) { return nil, errors.New("no kernel") } },
		} {
			newLab(t, nil).after(t, func(c *Config) { c.Settings.Mode = config.NetworkHost; fault(c) }, func(l *lab, _ func() []string) {
				l.resync()
				l.resync()
				if n := strings.Count(l.log.String(), "no kernel"); n != 1 || l.Problem() != "" {
					t.Errorf("told %d times, problem %q", n, l.Problem())
				}
			})
		}
	})
}

// TestLeaveAfterError has the removal fail once.
func TestLeaveAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		newLab(t, nil).after(t, func(c *Config) {
			c.Settings.Mode = config.NetworkHost
			c.Teardown = func(string) error {
				if calls++; calls == 1 {
					return errors.New("busy")
				}
				return nil
			}
		}, func(l *lab, _ func() []string) {
			l.resync()
			l.resync()
			if calls != 2 {
				t.Errorf("called %d times", calls)
			}
		})
	})
}

// TestLeaveRenamed changes the mode and the name of the bridge. In mode host the agent is
// also started again before the pod has ended.
func TestLeaveRenamed(t *testing.T) {
	for _, to := range []string{config.NetworkHost, config.NetworkCNI} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, nil)
			l.after(t, func(c *Config) { c.Settings.Bridge = "old" }, func(*lab, func() []string) {})
			l.shelf.hold(entry("alive", "10.1.0.9", time.Hour))
			change := func(c *Config) { c.Settings.Mode, c.Settings.Bridge = to, "new" }
			refuses := func(bridge string) string { return map[string]string{config.NetworkHost: bridge + " refuses"}[to] }
			if to == config.NetworkHost {
				l.after(t, change, func(*lab, func() []string) {})
			}
			l.after(t, change, func(l *lab, dismantled func() []string) {
				l.resync()
				if l.written(t) != refuses("old") || dismantled() != nil {
					t.Errorf("mode %s: configuration %q, dismantled %q", to, l.written(t), dismantled())
				}
				l.shelf.hold()
				l.resync()
				l.resync()
				if l.written(t) != refuses("new") || !slices.Equal(dismantled(), []string{"old"}) {
					t.Errorf("mode %s: configuration %q, dismantled %q", to, l.written(t), dismantled())
				}
			})
		})
	}
}

// TestRename changes the name of the bridge while pods are on the old one.
func TestRename(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := func(name string) func(*Config) { return func(c *Config) { c.Settings.Bridge = name } }
		l := newLab(t, nil)
		l.after(t, name("old"), func(*lab, func() []string) {})
		l.shelf.hold(entry("alive", "10.1.0.9", time.Hour))
		l.after(t, name("new"), func(l *lab, dismantled func() []string) {
			last := l.shelf.made[len(l.shelf.made)-1]
			if l.written(t) != "old 10.1.0.0/24" || last.Bridge != "old" || dismantled() != nil {
				t.Errorf("configuration %q, made of %+v, dismantled %q", l.written(t), last, dismantled())
			}
			l.shelf.hold()
			l.resync()
			last = l.shelf.made[len(l.shelf.made)-1]
			if l.written(t) != "new 10.1.0.0/24" || last.Bridge != "new" || !slices.Equal(dismantled(), []string{"old"}) {
				t.Errorf("configuration %q, made of %+v, dismantled %q", l.written(t), last, dismantled())
			}
			l.resync()
			if len(dismantled()) != 1 {
				t.Errorf("dismantled %q", dismantled())
			}
		})
	})
}
