package routes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/net/link"
)

// table is a fake kernel with one link.
type table struct {
	mu              gosync.Mutex
	prefix, prefix6 string
	routes          []link.Route
	fail            error
	looks           int
}

func (k *table) Links() ([]link.Link, error) {
	return []link.Link{{Index: 1, Name: "lo", Loopback: true, Up: true, Running: true}, {Index: 2, Name: "eth0", Up: true, Running: true}}, nil
}

func (k *table) Addresses(int) ([]link.Address, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks++
	all := []link.Address{{Index: 1, Prefix: netip.MustParsePrefix("127.0.0.1/8"), Scope: 254}, {Index: 2, Prefix: netip.MustParsePrefix(k.prefix)}}
	if k.prefix6 != "" {
		all = append(all, link.Address{Index: 2, Prefix: netip.MustParsePrefix(k.prefix6)})
	}
	return all, nil
}

func (k *table) Routes(f link.RouteFilter) ([]link.Route, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(k.routes), func(r link.Route) bool { return f.Protocol != 0 && r.Protocol != f.Protocol }), nil
}

func (k *table) AddRoute(r link.Route) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	if slices.ContainsFunc(k.routes, func(have link.Route) bool { return have.Dst == r.Dst }) {
		return fs.ErrExist
	}
	k.routes = append(k.routes, r)
	return nil
}

func (k *table) DeleteRoute(r link.Route) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.routes = slices.DeleteFunc(k.routes, func(have link.Route) bool { return have == r })
	return nil
}

func (k *table) Close() error { return nil }

// set modifies it with its lock held.
func (k *table) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// lab is a Router in virtual time.
type lab struct {
	*apiservertest.Server
	*Router
	t      *testing.T
	kernel *table
	log    bytes.Buffer
	mu     gosync.Mutex
	direct []string // one for each call
	server []netip.Addr
}

// kept is keep on the node own.
func kept(o runtime.Object) (peer, bool) { return keep(o, "own") }

func inLab(t *testing.T, before func(l *lab), test func(l *lab)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, Server: apiservertest.New(), kernel: &table{prefix: "192.168.0.1/24"}}
		log := slog.New(slog.NewTextHandler(&l.log, nil))
		events := event.NewRecorder(log)
		var err error
		l.Router, err = New(Config{
			API: l.Server, NodeName: "own", Bridge: "pods0", Open: func() (Kernel, error) { return l.kernel, nil },
			Direct: func(all []netip.Prefix) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.direct = append(l.direct, fmt.Sprint(all))
			},
			Server: func() []netip.Addr {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.server
			},
			File: filepath.Join(t.TempDir(), "nodes.json"), Events: events, Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		l.Router.watch = func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return nil
		}
		before(l)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		test(l)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// expect compares the kernel's routes, and the last argument of Direct.
func (l *lab) expect(routes, direct string) {
	l.t.Helper()
	time.Sleep(2 * gather)
	synctest.Wait()
	var got []string
	l.kernel.set(func() {
		for _, r := range l.kernel.routes {
			got = append(got, fmt.Sprintf("%v via %v", r.Dst, r.Gateway))
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(got)
	last := ""
	if len(l.direct) > 0 {
		last = l.direct[len(l.direct)-1]
	}
	if text := strings.Join(got, ", "); text != routes || last != direct {
		l.t.Errorf("routes %q, direct %s; want %q, %s", text, last, routes, direct)
	}
}

func TestRouter(t *testing.T) {
	inLab(t, func(l *lab) {
		l.Put(node("own", []string{"10.244.0.0/24"}, "192.168.0.1"))
		l.Put(node("a", []string{"10.244.1.0/24"}, "192.168.0.2"))
		l.Put(node("far", []string{"10.244.9.0/24"}, "203.0.113.1"))
	}, func(l *lab) {
		l.expect("10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
		for _, name := range []string{"b", "c", "d"} { // at once
			l.Put(node(name, []string{"10.244." + fmt.Sprint(name[0]) + ".0/24"}, "192.168.0."+fmt.Sprint(name[0])))
		}
		looks := 0
		l.kernel.set(func() { looks = l.kernel.looks })
		l.expect("10.244.1.0/24 via 192.168.0.2, 10.244.100.0/24 via 192.168.0.100, 10.244.98.0/24 via 192.168.0.98, 10.244.99.0/24 via 192.168.0.99",
			"[10.244.1.0/24 10.244.98.0/24 10.244.99.0/24 10.244.100.0/24]")
		l.kernel.set(func() {
			if l.kernel.looks != looks+1 {
				t.Errorf("%d looks for one batch", l.kernel.looks-looks)
			}
			// The board moves to another network.
			l.kernel.prefix = "203.0.113.7/24"
		})
		l.Trigger()
		l.expect("10.244.9.0/24 via 203.0.113.1", "[10.244.9.0/24]")
		l.Remove(apiclient.Nodes, "", "far")
		l.expect("", "[]")
	})
}

// A pod network that contains the API server's address is rejected, from when the
// address is known, and also while there is no connection.
func TestServerStaysReachable(t *testing.T) {
	inLab(t, func(l *lab) {
		l.Put(node("a", []string{"10.1.0.0/16", "10.2.0.0/24"}, "192.168.0.2"))
	}, func(l *lab) {
		server := func(all ...netip.Addr) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.server = all
		}
		l.expect("10.1.0.0/16 via 192.168.0.2, 10.2.0.0/24 via 192.168.0.2", "[10.1.0.0/16 10.2.0.0/24]")
		server(netip.MustParseAddr("10.1.7.7"))
		for range 2 {
			l.Trigger()
			l.expect("10.2.0.0/24 via 192.168.0.2", "[10.2.0.0/24]")
			server()
		}
		time.Sleep(writeInterval) // until the log may tell again
		l.Trigger()
		l.expect("10.2.0.0/24 via 192.168.0.2", "[10.2.0.0/24]")
		if !strings.Contains(l.log.String(), "it contains 10.1.7.7, the API server's address") {
			l.t.Errorf("the log: %s", &l.log)
		}
	})
}

// TestWithoutServer: the agent starts while the API server is unreachable.
func TestWithoutServer(t *testing.T) {
	left := link.Route{Dst: netip.MustParsePrefix("10.244.1.0/24"), Gateway: netip.MustParseAddr("192.168.0.2"), Link: 2, Protocol: Protocol}
	inLab(t, func(l *lab) {
		l.kernel.routes = []link.Route{left, {Dst: netip.MustParsePrefix("10.0.0.0/8"), Gateway: netip.MustParseAddr("192.168.0.5"), Link: 2}}
		l.Fail(errors.New("no route to host"))
	}, func(l *lab) {
		time.Sleep(time.Hour)
		l.expect("10.0.0.0/8 via 192.168.0.5, 10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
		l.Put(node("b", []string{"10.244.2.0/24"}, "192.168.0.3"))
		l.Fail(nil)
		time.Sleep(time.Minute)
		l.expect("10.0.0.0/8 via 192.168.0.5, 10.244.2.0/24 via 192.168.0.3", "[10.244.2.0/24]")
	})
}

// TestReboot: the board reboots while the API server is unreachable.
func TestReboot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "nodes.json")
	const routes, direct = "10.244.1.0/24 via 192.168.0.2, fd00:1::/64 via fd00::2", "[10.244.1.0/24 fd00:1::/64]"
	with := func(l *lab) { l.cfg.File, l.kernel.prefix6 = file, "fd00::1/64" }
	inLab(t, func(l *lab) {
		with(l)
		l.Put(node("a", []string{"10.244.1.0/24", "fd00:1::/64"}, "192.168.0.2", "fd00::2"))
	}, func(l *lab) {
		l.expect(routes, direct)
		before, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		l.Put(node("a", []string{"10.244.1.0/24", "fd00:1::/64"}, "192.168.0.2", "fd00::2"))
		l.Trigger()
		l.expect(routes, direct)
		if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
			t.Errorf("the file was written for nothing: %v", err)
		}
	})
	away := func(l *lab) { with(l); l.Fail(errors.New("no route to host")) }
	inLab(t, away, func(l *lab) { l.expect(routes, direct) })
	if err := os.WriteFile(file, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	inLab(t, away, func(l *lab) {
		l.expect("", "[]")
		if !strings.Contains(l.log.String(), "cannot use node cache") {
			t.Errorf("log %s", l.log.String())
		}
		l.Fail(nil)
		l.Put(node("b", []string{"10.244.2.0/24"}, "192.168.0.3"))
		time.Sleep(time.Minute)
		l.expect("10.244.2.0/24 via 192.168.0.3", "[10.244.2.0/24]")
	})
	inLab(t, away, func(l *lab) { l.expect("10.244.2.0/24 via 192.168.0.3", "[10.244.2.0/24]") })
}

// TestRestless: the addresses of a node change all the time. Its routes follow,
// with few writes to the log and to the disk.
func TestRestless(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes.json")
	inLab(t, func(l *lab) { l.cfg.File = file }, func(l *lab) {
		time.Sleep(writeInterval)
		writes, before := 0, os.FileInfo(nil)
		for i := range 200 {
			ip := []string{"192.168.0.2", "203.0.113.2"}[i%2]
			l.Put(node("a", []string{"10.244.1.0/24"}, ip))
			if i%2 == 0 {
				l.expect("10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
			} else {
				l.expect("", "[]")
			}
			after, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if before == nil || !os.SameFile(before, after) {
				writes++
			}
			before = after
		}
		if n := strings.Count(l.log.String(), "routes to other nodes' pods"); n > 3 || writes > 3 {
			t.Errorf("%d lines in the log, %d writes in 40 s", n, writes)
		}
		l.Put(node("a", []string{"10.244.7.0/24"}, "192.168.0.2"))
		time.Sleep(writeInterval) // nothing else happens
		l.expect("10.244.7.0/24 via 192.168.0.2", "[10.244.7.0/24]")
		if data, err := os.ReadFile(file); err != nil || !bytes.Contains(data, []byte("10.244.7.0/24")) {
			t.Errorf("%v: the file has %s", err, data)
		}
	})
}

// TestLateNode: a node appears just after a write of the file. The file has it when
// the agent ends soon after.
func TestLateNode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes.json")
	with := func(l *lab) { l.cfg.File = file }
	inLab(t, with, func(l *lab) {
		l.expect("", "[]")
		l.Put(node("a", []string{"10.244.1.0/24"}, "192.168.0.2"))
		l.expect("10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
	})
	inLab(t, func(l *lab) { with(l); l.Fail(errors.New("no route to host")) }, func(l *lab) {
		l.expect("10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
	})
}

func TestMemory(t *testing.T) {
	m := nodeCache(filepath.Join(t.TempDir(), "nodes.json"))
	p, _ := kept(aged(7, node("a", []string{"10.244.1.0/24", "fd00:1::/64"}, "192.168.0.2", "fd00::2")))
	peers := map[listwatch.Key]peer{{Name: "a"}: p}
	if err := m.store(peers); err != nil {
		t.Fatal(err)
	}
	got, err := m.load()
	if err != nil || p.since != 7 || !maps.EqualFunc(got, peers, same) {
		t.Errorf("%v, %v; want %v", got, err, peers)
	}
}

func FuzzRecall(f *testing.F) {
	f.Add([]byte(`[{"name":"a","podCIDRs":["10.244.1.0/24","::ffff:1.2.3.4/104"],"addresses":["192.168.0.2","fe80::1%eth0",""]},{}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		peers, err := recall(data)
		if err != nil {
			return
		}
		for _, r := range plan(board(), peers).routes {
			if r.Dst != r.Dst.Masked() || r.Dst.Addr().Is4() != r.Gateway.Is4() || r.Link == 0 {
				t.Errorf("%v of %q", r, data)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	inLab(t, func(l *lab) { l.Refuse() }, func(l *lab) {
		time.Sleep(time.Minute)
		if p := l.Problem(); !strings.Contains(p, "kubectl create clusterrolebinding") || !strings.Contains(l.log.String(), "RoutesNotReady") {
			t.Errorf("problem %q, log %s", p, l.log.String())
		}
		l.Fail(nil)
		time.Sleep(5 * time.Minute)
		if p := l.Problem(); p != "" {
			t.Errorf("problem %q", p)
		}
	})
}

func TestFailure(t *testing.T) {
	inLab(t, func(l *lab) {
		l.Put(node("a", []string{"10.244.1.0/24"}, "192.168.0.2"))
		l.kernel.fail = errors.New("no buffers")
	}, func(l *lab) {
		time.Sleep(10 * time.Minute)
		l.expect("", "[]")
		if p := l.Problem(); !strings.Contains(p, "no buffers") {
			t.Errorf("problem %q", p)
		}
		if n := strings.Count(l.log.String(), "cannot update routes to other nodes' pods"); n != 1 {
			t.Errorf("called %d times: %s", n, l.log.String())
		}
		l.kernel.set(func() {
			if l.kernel.looks < 15 || l.kernel.looks > 50 {
				t.Errorf("looked %d times in 10 minutes", l.kernel.looks)
			}
			l.kernel.fail = nil
		})
		time.Sleep(time.Minute)
		l.expect("10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
		if p := l.Problem(); p != "" {
			t.Errorf("problem %q", p)
		}
	})
}

// A watch that fails starts again: routes that others delete later are restored.
func TestWatchStartsAgain(t *testing.T) {
	attempts := 0
	inLab(t, func(l *lab) {
		l.Put(node("a", []string{"10.244.1.0/24"}, "192.168.0.2"))
		l.Router.watch = func(ctx context.Context, notify func()) error {
			if attempts++; attempts == 1 {
				return errors.New("no memory")
			}
			time.Sleep(time.Hour)
			l.kernel.set(func() { l.kernel.routes = nil })
			notify()
			<-ctx.Done()
			return nil
		}
	}, func(l *lab) {
		l.expect("10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
		time.Sleep(time.Hour + wait.WatchFirst)
		l.expect("10.244.1.0/24 via 192.168.0.2", "[10.244.1.0/24]")
		if attempts != 2 {
			t.Errorf("the watch ran %d times, want 2", attempts)
		}
	})
}
