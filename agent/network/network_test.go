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

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

// shelf is a fake pod network that records its calls.
type shelf struct {
	mu      sync.Mutex
	made    []cni.Config
	ensured int
	closed  int
	fail    error
	has     []podnet.Entry
}

func (s *shelf) Ensure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ensured++
	return s.fail
}

func (s *shelf) Close() error { s.closed++; return nil }

// hold sets the pods of the network.
func (s *shelf) hold(pods ...podnet.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has = pods
}

func (s *shelf) Used(ranges []ipam.Range) ([]ipam.Range, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ranges), func(r ipam.Range) bool {
		return !slices.ContainsFunc(s.has, func(e podnet.Entry) bool { return slices.ContainsFunc(e.Addresses, r.Prefix.Contains) })
	}), nil
}

// looks returns the number of calls of Ensure.
func (s *shelf) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ensured
}

// count returns the number of pods.
func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.has)
}

func (s *shelf) Collect(lives func(podnet.Entry) bool) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.has)
	s.has = slices.DeleteFunc(s.has, func(e podnet.Entry) bool { return !lives(e) })
	return before - len(s.has), nil
}

// entry returns the entry of a pod whose container started a while ago.
func entry(container, address string, age time.Duration) podnet.Entry {
	return podnet.Entry{ID: cni.ID{ContainerID: container}, Addresses: []netip.Addr{netip.MustParseAddr(address)}, Since: time.Now().Add(-age)}
}

// lab is a Network with a temporary folder and a shelf.
type lab struct {
	*Network
	shelf  *shelf
	folder string
	log    *bytes.Buffer
}

func newLab(t *testing.T, change func(*Config)) *lab {
	t.Helper()
	root := t.TempDir()
	l := &lab{shelf: &shelf{}, folder: filepath.Join(root, "net.d"), log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(l.log, nil))
	watch := func(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }
	cfg := Config{
		Settings:        config.Network{ConfigFolder: l.folder, PluginFolder: filepath.Join(root, "bin"), Bridge: "pods0"},
		Inputs:          NewInputs(),
		Binary:          "/usr/bin/tinylet",
		UplinkAddresses: func() ([]netip.Addr, error) { return nil, nil },
		Info:            func(context.Context) (container.Info, error) { return container.Info{}, nil },
		Pods:            func(c cni.Config) (Pods, error) { l.shelf.made = append(l.shelf.made, c); return l.shelf, nil },
		Containers:      func(context.Context) ([]string, bool) { return []string{"alive"}, true },
		Teardown:        func(string) error { return nil },
		Refresh:         func(context.Context) error { return nil },
		WatchHost:       watch, WatchRules: watch,
		Events: event.NewRecorder(log), Log: log,
	}
	if change != nil {
		change(&cfg)
	}
	l.Network = New(cfg)
	l.files = newTeller(nil) // the kernel does not wait in virtual time
	return l
}

// written returns the content of tinylet's file, in short.
func (l *lab) written(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.folder, FileName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	c, err := cni.ParseConflist(data)
	if err != nil {
		return string(data)
	}
	text := []string{c.Bridge}
	for _, r := range c.Ranges {
		text = append(text, r.Prefix.String())
	}
	for _, r := range c.Kept {
		text = append(text, "kept", r.Prefix.String())
	}
	if c.Refuse != "" {
		text = append(text, "refuses")
	}
	return strings.Join(text, " ")
}

// resync triggers a reconcile in virtual time.
func (l *lab) resync() {
	l.Trigger()
	time.Sleep(minSyncInterval)
	synctest.Wait()
}

// run runs the Network in virtual time, and do concurrently.
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
		// The clock was set after one of them was created.
		starting := entry("starting", "10.1.0.5", 0)
		starting.Since = time.Unix(0, 0)
		l.shelf.hold(entry("alive", "10.1.0.2", time.Hour), entry("dead", "10.1.0.3", time.Hour), entry("new", "10.1.0.4", time.Minute), starting)
		l.run(t, func() {
			if got := l.written(t); got != "pods0 10.1.0.0/24" || l.Problem() != "" {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
			if len(l.shelf.made) != 1 || l.shelf.looks() != 1 || l.shelf.count() != 4 {
				t.Errorf("%+v", l.shelf)
			}
			l.resync()
			if len(l.shelf.made) != 1 || l.shelf.looks() != 2 || l.shelf.count() != 4 {
				t.Errorf("a look that finds the same: %+v", l.shelf)
			}
			time.Sleep(resyncInterval + time.Second)
			synctest.Wait()
			if l.shelf.looks() != 3 || l.shelf.count() != 1 {
				t.Errorf("looked %d times after the slow look, %d pods", l.shelf.looks(), l.shelf.count())
			}
		})
	})
}

// TestReservedPorts: the plugin knows the host ports that no pod may have.
func TestReservedPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *Config) {
			c.Networks, c.Ports = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, []uint16{10248, 10250}
		})
		l.run(t, func() {
			data, err := os.ReadFile(filepath.Join(l.folder, FileName))
			if err != nil {
				t.Fatal(err)
			}
			c, err := cni.ParseConflist(data)
			if err != nil || !slices.Equal(c.Reserved, []uint16{10248, 10250}) || !slices.Equal(l.shelf.made[0].Reserved, c.Reserved) {
				t.Errorf("reserved are %v: %v", c.Reserved, err)
			}
			l.resync()
			if len(l.shelf.made) != 1 {
				t.Errorf("what was written is not what is wanted: %+v", l.shelf.made)
			}
		})
	})
}

// TestAssigned: a controller assigns a network some time after the node was
// created, and another one later. Then the node starts without a server.
func TestAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, assigned := 0, []string(nil)
		var l *lab
		l = newLab(t, func(c *Config) {
			c.Refresh = func(context.Context) error {
				if asked++; asked == 3 {
					assigned = []string{"10.244.1.7/24"}
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
			if got := l.written(t); got != "pods0 10.244.1.0/24" || l.Problem() != "" || asked != 3 {
				t.Errorf("configuration %q, problem %q, asked %d times", got, l.Problem(), asked)
			}
			l.shelf.hold(entry("alive", "10.244.1.9", time.Hour))
			l.Assigned([]string{"10.244.7.0/24", "fd00:7::/64"})
			l.Direct([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")})
			l.resync()
			if got := l.written(t); got != "pods0 10.244.7.0/24 fd00:7::/64 kept 10.244.1.0/24" {
				t.Errorf("configuration %q", got)
			}
			last := l.shelf.made[len(l.shelf.made)-1]
			if len(last.Ranges) != 2 || len(last.Direct) != 1 {
				t.Errorf("made of %+v", last)
			}
			l.shelf.hold()
			l.Assigned(nil)
			l.resync()
			if got := l.written(t); asked != 3 || got != "pods0 10.244.7.0/24 fd00:7::/64" {
				t.Errorf("asked %d times, configuration %q", asked, got)
			}
		})
		again := newLab(t, func(c *Config) {
			c.Settings.ConfigFolder = l.folder
			c.Refresh = func(context.Context) error { t.Error("the server was asked"); return nil }
		})
		again.folder = l.folder
		defer func() {
			if l.shelf.closed == 0 {
				t.Error("nothing was closed")
			}
		}()
		again.run(t, func() {
			if got := again.written(t); got != "pods0 10.244.7.0/24 fd00:7::/64" || again.Problem() != "" {
				t.Errorf("without a server: configuration %q, problem %q", got, again.Problem())
			}
		})
	})
}

// TestRouted checks which networks are not masqueraded before the first call of
// Direct.
func TestRouted(t *testing.T) {
	remote := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24")}
	synctest.Test(t, func(t *testing.T) {
		var ensured int
		change := func(c *Config) {
			c.Settings.Mode = config.NetworkRouted
			c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			c.OnReady = []func(){func() { ensured++ }}
		}
		l := newLab(t, change)
		l.run(t, func() {
			l.Direct(remote)
			time.Sleep(minSyncInterval)
			synctest.Wait()
			if last := l.shelf.made[len(l.shelf.made)-1]; !slices.Equal(last.Direct, remote) || ensured != 2 {
				t.Errorf("made of %+v, ensured %d times", last, ensured)
			}
		})
		again := newLab(t, func(c *Config) { change(c); c.Settings.ConfigFolder = l.folder })
		again.folder = l.folder
		again.run(t, func() {
			if last := again.shelf.made[0]; !slices.Equal(last.Direct, remote) {
				t.Errorf("made of %+v", last)
			}
			again.Direct(nil)
			time.Sleep(minSyncInterval)
			synctest.Wait()
			if last := again.shelf.made[len(again.shelf.made)-1]; len(last.Direct) != 0 {
				t.Errorf("made of %+v", last)
			}
			again.Direct(remote)
			time.Sleep(minSyncInterval)
			synctest.Wait()
		})
		bridge := newLab(t, func(c *Config) { change(c); c.Settings.ConfigFolder, c.Settings.Mode = l.folder, "" })
		bridge.Network.folder = folder{l.folder}
		bridge.run(t, func() {
			if last := bridge.shelf.made[0]; len(last.Direct) != 0 {
				t.Errorf("made of %+v", last)
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
			if n := strings.Count(l.log.String(), "pod network is not ready"); n != 1 {
				t.Errorf("the log told %d times", n)
			}
			l.shelf.mu.Lock()
			l.shelf.fail = nil
			l.shelf.mu.Unlock()
			l.resync()
			if l.Problem() != "" || l.written(t) == "" || !strings.Contains(l.log.String(), "pod network is ready again") {
				t.Errorf("problem %q, log %s", l.Problem(), l.log)
			}
		})
	})
}

// TestKernelWithoutNFTables checks that the problem names the pods that do not
// start and a remedy. If all pods use the host's network there is no problem.
func TestKernelWithoutNFTables(t *testing.T) {
	for mode, want := range map[string]string{
		config.NetworkBridge: "pods without hostNetwork cannot start: set up: the kernel has no nf_tables: load it (modprobe -a nf_tables) or use a kernel that has it (protocol not supported)",
		config.NetworkHost:   "",
		config.NetworkCNI:    "",
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, func(c *Config) {
				c.Settings.Mode, c.Networks = mode, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			})
			l.shelf.fail = fmt.Errorf("set up: %w", &nft.Unsupported{What: "nf_tables", Err: unix.EPROTONOSUPPORT})
			l.run(t, func() {
				if got := l.Problem(); got != want {
					t.Errorf("mode %s: the problem is %q, want %q", mode, got, want)
				}
			})
		})
	}
}

// A node that joins has no networks at first, and logs no warning.
func TestJoining(t *testing.T) {
	for _, row := range []struct {
		name    string
		after   time.Duration
		alarmed bool
	}{
		{"soon", 5 * time.Second, false},
		{"late", 2 * joining, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				registered := false
				var l *lab
				l = newLab(t, func(c *Config) {
					c.Networks = nil
					c.Refresh = func(context.Context) error {
						switch {
						case time.Since(began) < row.after/2:
							return errors.New("no such node")
						case time.Since(began) >= row.after:
							l.Assigned([]string{"10.1.0.0/24"})
						}
						registered = true
						return nil
					}
				})
				l.run(t, func() {
					if l.Problem() == "" {
						t.Error("the node does not say why it has no network")
					}
					time.Sleep(row.after + time.Minute)
					synctest.Wait()
					if !registered || l.Problem() != "" || l.written(t) == "" {
						t.Errorf("problem %q, configuration %q", l.Problem(), l.written(t))
					}
					if alarmed := strings.Contains(l.log.String(), "pod network is not ready"); alarmed != row.alarmed {
						t.Errorf("alarmed: %v, log %s", alarmed, l.log)
					}
				})
			})
		})
	}
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
		{"host", "host", false, false, "pods0 refuses", 0, "host's network or have none"},
		{"host, beside others", "host", false, true, "pods0 refuses", 0, "uses another network configuration first"},
		{"left alone", "", false, true, "", 0, "mode=cni"},
		{"given up", "cni", true, true, "", 0, "mode=cni"},
		{"meant, but shadowed", "bridge", false, true, "pods0 10.1.0.0/24", 1, "uses another network configuration first"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, func(c *Config) {
					c.Settings.Mode = row.mode
					c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
				})
				if err := os.MkdirAll(l.folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if row.ours {
					data, err := cni.Conflist(hostOnlyConfig(l.cfg.Settings), networkName)
					if err == nil {
						_, err = folder{l.folder}.write(data)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if row.other {
					if err := os.WriteFile(filepath.Join(l.folder, theirs), []byte("{}"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				l.run(t, func() {
					if got := l.written(t); got != row.want {
						t.Errorf("configuration %q, want %q", got, row.want)
					}
					if l.shelf.looks() != row.ensured || !strings.Contains(l.log.String(), row.log) {
						t.Errorf("ensured %d times; log %s", l.shelf.looks(), l.log)
					}
					if warns := strings.Contains(l.log.String(), "WARN"); warns != strings.Contains(row.log, "first") {
						t.Errorf("warned %v; log %s", warns, l.log)
					}
				})
			})
		})
	}
}
