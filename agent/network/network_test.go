package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/event"
)

// shelf is a pods' network that remembers what it was asked.
type shelf struct {
	mu      sync.Mutex
	made    []Shared
	ensured int
	fail    error
	has     []string // containers
}

func (s *shelf) Ensure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ensured++
	return s.fail
}

// looks is how often it was ensured.
func (s *shelf) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ensured
}

func (s *shelf) Collect(lives func(string) bool) (int, error) {
	before := len(s.has)
	s.has = slices.DeleteFunc(s.has, func(c string) bool { return !lives(c) })
	return before - len(s.has), nil
}

// lab is a Network over a folder and a shelf.
type lab struct {
	*Network
	shelf  *shelf
	folder string
	log    *bytes.Buffer
}

const mark = "tinylet "

func newLab(t *testing.T, change func(*Config)) *lab {
	t.Helper()
	root := t.TempDir()
	l := &lab{shelf: &shelf{}, folder: filepath.Join(root, "net.d"), log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(l.log, nil))
	cfg := Config{
		Settings: config.Network{ConfigFolder: l.folder, PluginFolder: filepath.Join(root, "bin")},
		Joined:   true, Binary: "/usr/bin/tinylet",
		Pods: func(s Shared) (Pods, error) { l.shelf.made = append(l.shelf.made, s); return l.shelf, nil },
		Conflist: func(s Shared) ([]byte, error) {
			return fmt.Appendf(nil, "%s%s %v", mark, s.Mode, s.Networks), nil
		},
		Recall: func(data []byte) ([]netip.Prefix, bool) {
			text, ok := strings.CutPrefix(string(data), mark)
			var networks []netip.Prefix
			for field := range strings.FieldsSeq(strings.NewReplacer("[", " ", "]", " ").Replace(text)) {
				if p, err := netip.ParsePrefix(field); err == nil {
					networks = append(networks, p)
				}
			}
			return networks, ok
		},
		Containers: func(context.Context) ([]string, bool) { return []string{"alive"}, true },
		Events:     event.NewRecorder(log), Log: log,
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if l.Network, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) written(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.folder, FileName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// run runs it in virtual time, and do beside it.
func (l *lab) run(t *testing.T, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	synctest.Wait()
	do()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *Config) { c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")} })
		l.shelf.has = []string{"alive", "dead"}
		l.run(t, func() {
			if got := l.written(t); got != mark+"bridge [10.1.0.0/24]" || l.Problem() != "" {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
			if len(l.shelf.made) != 1 || l.shelf.looks() != 1 || !slices.Equal(l.shelf.has, []string{"alive"}) {
				t.Errorf("%+v", l.shelf)
			}
			l.Look()
			synctest.Wait()
			if len(l.shelf.made) != 1 || l.shelf.looks() != 2 {
				t.Errorf("a look that finds the same: %+v", l.shelf)
			}
			time.Sleep(slowLook + time.Second)
			synctest.Wait()
			if l.shelf.looks() != 3 {
				t.Errorf("looked %d times after the slow look", l.shelf.looks())
			}
		})
	})
}

// TestAssigned is a node to which a controller gives its network a while after
// it was made, later another one, and which then starts without any server.
func TestAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, assigned := 0, []string(nil)
		var l *lab
		l = newLab(t, func(c *Config) {
			c.Refresh = func(context.Context) error {
				if asked++; asked == 3 {
					assigned = []string{"10.244.1.0/24", "no network"}
				}
				l.Assigned(assigned)
				return nil
			}
		})
		l.run(t, func() {
			if !strings.Contains(l.Problem(), "--allocate-node-cidrs") || l.written(t) != "" {
				t.Errorf("problem %q, configuration %q", l.Problem(), l.written(t))
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := l.written(t); got != mark+"bridge [10.244.1.0/24]" || l.Problem() != "" || asked != 3 {
				t.Errorf("configuration %q, problem %q, asked %d times", got, l.Problem(), asked)
			}
			l.Assigned([]string{"10.244.7.0/24", "fd00:7::/64"})
			l.Direct([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")})
			synctest.Wait()
			if got := l.written(t); got != mark+"bridge [10.244.7.0/24 fd00:7::/64]" {
				t.Errorf("configuration %q", got)
			}
			last := l.shelf.made[len(l.shelf.made)-1]
			if len(last.Networks) != 2 || len(last.Direct) != 1 {
				t.Errorf("made of %+v", last)
			}
			l.Assigned(nil)
			synctest.Wait()
			if asked != 3 {
				t.Errorf("asked %d times", asked)
			}
		})
		again := newLab(t, func(c *Config) {
			c.Settings.ConfigFolder = l.folder
			c.Refresh = func(context.Context) error { t.Error("the server was asked"); return nil }
		})
		again.folder = l.folder
		again.run(t, func() {
			if got := again.written(t); got != mark+"bridge [10.244.7.0/24 fd00:7::/64]" || again.Problem() != "" {
				t.Errorf("without a server: configuration %q, problem %q", got, again.Problem())
			}
		})
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *Config) { c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")} })
		l.shelf.fail = errors.New("no bridge")
		l.run(t, func() {
			if l.Problem() != "no bridge" || l.written(t) != "" {
				t.Errorf("problem %q, configuration %q", l.Problem(), l.written(t))
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if n := l.shelf.looks(); n < 8 || n > 30 {
				t.Errorf("tried %d times in 5 minutes", n)
			}
			if n := strings.Count(l.log.String(), "is not ready"); n != 1 {
				t.Errorf("the log told %d times", n)
			}
			l.shelf.mu.Lock()
			l.shelf.fail = nil
			l.shelf.mu.Unlock()
			l.Look()
			synctest.Wait()
			if l.Problem() != "" || l.written(t) == "" || !strings.Contains(l.log.String(), "ready again") {
				t.Errorf("problem %q, log %s", l.Problem(), l.log)
			}
		})
	})
}

func TestModes(t *testing.T) {
	const theirs = "10-flannel.conflist"
	for _, row := range []struct {
		name, mode  string
		ours, other bool
		want        string
		ensured     int
		log         string
	}{
		{"host", "host", false, false, mark + "host []", 0, "mode=host"},
		{"left alone", "", false, true, "", 0, "mode=cni"},
		{"given up", "cni", true, true, "", 0, "mode=cni"},
		{"meant, but shadowed", "bridge", false, true, mark + "bridge [10.1.0.0/24]", 1, "its name comes first"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, func(c *Config) {
					c.Settings.Mode = row.mode
					c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
				})
				for name, there := range map[string]bool{FileName: row.ours, theirs: row.other} {
					if there {
						if err := os.MkdirAll(l.folder, 0o755); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(filepath.Join(l.folder, name), []byte(mark), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
				l.run(t, func() {
					if got := l.written(t); got != row.want {
						t.Errorf("configuration %q, want %q", got, row.want)
					}
					if l.shelf.looks() != row.ensured || !strings.Contains(l.log.String(), row.log) {
						t.Errorf("ensured %d times; log %s", l.shelf.looks(), l.log)
					}
				})
			})
		})
	}
}
