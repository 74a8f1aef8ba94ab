package proxy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
	"github.com/tinylet/tinylet/net/nft"
	"github.com/tinylet/tinylet/net/podnet"
)

var _ Table = (*nft.Table)(nil)

// shelf is a fake table that records its calls.
type shelf struct {
	mu                    sync.Mutex
	opened, closed, syncs int
	last                  []nft.Service
	apart                 nft.Apart
	fail                  error
}

func (s *shelf) SyncServices(all []nft.Service, apart nft.Apart) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncs++
	if s.fail == nil {
		s.last, s.apart = all, apart
	}
	return s.fail
}

func (s *shelf) Close() error { s.closed++; return nil }

// lab is a Proxy in virtual time.
type lab struct {
	*apiservertest.Server
	*Proxy
	t     *testing.T
	shelf *shelf
	log   bytes.Buffer
}

func noServer() []netip.Addr { return nil }

func noHost() (own, routers []netip.Addr, err error) { return nil, nil, nil }

func inLab(t *testing.T, before, test func(l *lab)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, Server: apiservertest.New(), shelf: &shelf{}}
		log := slog.New(slog.NewTextHandler(&l.log, nil))
		var err error
		l.Proxy, err = New(Config{
			API: l.Server, NodeName: "own", Open: func() (Table, error) { l.shelf.opened++; return l.shelf, nil },
			Server: noServer, Host: noHost, Events: event.NewRecorder(log), Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		before(l)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		test(l)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if l.shelf.opened != l.shelf.closed {
			t.Errorf("opened %d times, closed %d times", l.shelf.opened, l.shelf.closed)
		}
	})
}

// expect compares the content of the table, and the number of updates since the
// last call.
func (l *lab) expect(syncs int, want ...string) {
	l.t.Helper()
	time.Sleep(3 * batchDelay)
	synctest.Wait()
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	var got []string
	for _, s := range l.shelf.last {
		got = append(got, short(s))
	}
	if l.shelf.syncs != syncs || strings.Join(got, "\n") != strings.Join(want, "\n") {
		l.t.Errorf("told %d times, %q; want %d times, %q", l.shelf.syncs, got, syncs, want)
	}
	l.shelf.syncs = 0
}

// told returns the number of updates of the table since the last call.
func (l *lab) told() int {
	synctest.Wait()
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	n := l.shelf.syncs
	l.shelf.syncs = 0
	return n
}

func (l *lab) fails(err error) {
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	l.shelf.fail = err
}

const (
	without = "shop/web:http/TCP [10.96.0.1]:80 to []"
	with    = "shop/web:http/TCP [10.96.0.1]:80 to [10.1.0.2:8080]"
	withTwo = "shop/web:http/TCP [10.96.0.1]:80 to [10.1.0.2:8080 10.1.0.3:8080]"
)

func TestProxy(t *testing.T) {
	inLab(t, func(l *lab) {
		l.Put(web(nil))
		l.Put(ends("a", "10.1.0.2 ready"))
	}, func(l *lab) {
		l.expect(0)
		if calls := l.Made(); len(calls) != 0 {
			t.Errorf("before there is a table: %q", calls)
		}
		l.TableCreated()
		l.expect(1, with)
		for _, c := range l.Calls() {
			if o := c.List; o.LabelSelector != "!service.kubernetes.io/service-proxy-name" && o.LabelSelector != "!service.kubernetes.io/headless" {
				t.Errorf("asked for %+v", o)
			}
		}
		l.Put(ends("b", "10.1.0.3 ready"))
		l.Put(ends("c", "10.1.0.3 ready"))
		l.Put(web(func(s *v1.Service) { s.Annotations = map[string]string{"a": "b"} }))
		l.expect(1, withTwo)
		l.Put(web(func(s *v1.Service) { s.Annotations = nil }))
		l.expect(0, withTwo)
		l.TableCreated() // the table was made anew
		l.expect(1, withTwo)
		l.Remove(apiclient.Services, "shop", "web")
		l.expect(1)
		if l.shelf.opened != 1 {
			t.Errorf("opened %d times", l.shelf.opened)
		}
	})
}

// TestHalf: the server has sent only Services. Nothing changes, because all
// connections would be rejected.
func TestHalf(t *testing.T) {
	inLab(t, func(l *lab) {
		l.TableCreated()
		l.Put(web(nil))
		l.Put(ends("a", "10.1.0.2 ready"))
		l.SetFaults(apiservertest.Faults{Before: func(_ context.Context, c apiservertest.Call) error {
			if c.Resource == apiclient.EndpointSlices {
				return errors.New("no route to host")
			}
			return nil
		}})
	}, func(l *lab) {
		time.Sleep(time.Minute)
		l.expect(0)
		l.Fail(nil)
		time.Sleep(time.Minute)
		l.expect(1, with)
	})
}

func TestNoTable(t *testing.T) {
	inLab(t, func(l *lab) {
		l.Put(web(nil))
		l.fails(nft.ErrNoTable)
		l.TableCreated()
	}, func(l *lab) {
		time.Sleep(time.Hour)
		l.expect(1)
		if l.Problem() != "" {
			t.Errorf("problem %q", l.Problem())
		}
		l.fails(nil)
		l.TableCreated()
		l.expect(1, without)
	})
}

func TestFailure(t *testing.T) {
	inLab(t, func(l *lab) {
		l.Put(web(nil))
		l.fails(errors.New("no buffers"))
		l.TableCreated()
	}, func(l *lab) {
		time.Sleep(10 * time.Minute)
		if n := l.told(); n < 15 || n > 50 {
			t.Errorf("tried %d times in 10 minutes", n)
		}
		if p := l.Problem(); !strings.Contains(p, "no buffers") || strings.Count(l.log.String(), "cannot update Service rules") != 1 {
			t.Errorf("problem %q, log %s", p, l.log.String())
		}
		l.fails(nil)
		time.Sleep(time.Minute)
		l.told()
		l.expect(0, without)
		if l.Problem() != "" {
			t.Errorf("problem %q", l.Problem())
		}
	})
}

// TestHostFails has the addresses of this machine be unknown for a while.
func TestHostFails(t *testing.T) {
	router := ips("192.0.2.1")
	var fails atomic.Bool
	inLab(t, func(l *lab) {
		l.cfg.Host = func() (own, routers []netip.Addr, err error) {
			if fails.Load() {
				return nil, nil, errors.New("no memory")
			}
			return nil, router, nil
		}
		l.Put(web(nil))
		l.TableCreated()
	}, func(l *lab) {
		l.expect(1, without)
		fails.Store(true)
		l.Put(ends("a", "10.1.0.2 ready"))
		l.expect(0, without)
		if p := l.Problem(); !strings.Contains(p, "no memory") {
			t.Errorf("problem %q", p)
		}
		fails.Store(false)
		time.Sleep(time.Minute)
		l.expect(1, with)
		if l.Problem() != "" || !slices.Equal(l.shelf.apart.Hosts, router) {
			t.Errorf("problem %q, apart %+v", l.Problem(), l.shelf.apart)
		}
	})
}

func TestRefused(t *testing.T) {
	inLab(t, func(l *lab) { l.Refuse(); l.TableCreated() }, func(l *lab) {
		time.Sleep(time.Minute)
		if p := l.Problem(); strings.Count(p, "kubectl create clusterrolebinding") != 1 || !strings.Contains(l.log.String(), "ServicesNotReady") {
			t.Errorf("problem %q, log %s", p, l.log.String())
		}
	})
}

// openIn opens the table of a network namespace.
func openIn(ns *os.File) (table *nft.Table, err error) {
	err = netns.Do(ns, func() error {
		table, err = nft.Open()
		return err
	})
	return table, err
}

// TestOnTheKernel uses a real table, which others flush.
func TestOnTheKernel(t *testing.T) {
	ns := nstest.New(t)
	base := nft.Base{Bridge: "pods0", Pods: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, Masquerade: true}
	shared, err := openIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	api := apiservertest.New()
	api.Put(web(func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30080 }))
	api.Put(ends("a", "10.1.0.2 ready"))
	log := slog.New(slog.DiscardHandler)
	p, err := New(Config{
		API: api, NodeName: "own", Bridge: "pods0", Open: func() (Table, error) { return openIn(ns) },
		Server: noServer, Host: noHost, Events: event.NewRecorder(log), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	for range 2 {
		if _, err := shared.Ensure(base, nil); err != nil {
			t.Fatal(err)
		}
		p.TableCreated()
		eventually(t, ns, "10.96.0.1 . tcp . 80", "tcp . 30080", "dnat ip to 10.1.0.2:8080")
		if err := shared.Repair(base, nil); err != nil { // which knows of no services
			t.Fatal(err)
		}
		p.TableCreated()
		eventually(t, ns, "10.96.0.1 . tcp . 80")
		if err := shared.Delete(); err != nil {
			t.Fatal(err)
		}
		p.TableCreated()
		time.Sleep(2 * batchDelay)
	}
}

// TestHeard runs the agent's watch of the table together with a Proxy: only the
// kernel reports what others change in the table.
func TestHeard(t *testing.T) {
	ns := nstest.New(t)
	base := nft.Base{Bridge: "pods0", Pods: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, Masquerade: true}
	shared, err := openIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	api := apiservertest.New()
	api.Put(web(nil))
	api.Put(ends("a", "10.1.0.2 ready"))
	log := slog.New(slog.DiscardHandler)
	p, err := New(Config{
		API: api, NodeName: "own", Bridge: "pods0", Open: func() (Table, error) { return openIn(ns) },
		Server: noServer, Host: noHost, Events: event.NewRecorder(log), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	told := make(chan struct{}, 1)
	all.Go(func() { _ = p.Run(ctx) })
	all.Go(func() {
		_ = netns.Do(ns, func() error { return podnet.Watch(ctx, "pods0", func() { wait.Notify(told) }) })
	})
	all.Go(func() { // as agent/network looks
		for wait.Notify(told); ; {
			select {
			case <-ctx.Done():
				return
			case <-told:
			}
			if _, err := shared.Ensure(base, nil); err != nil {
				t.Error(err)
			}
			p.TableCreated()
		}
	})
	const jump = "policy accept;\n\t\tjump services\n"
	has := []string{"10.96.0.1 . tcp . 80", "vmap @services4", "dnat ip to 10.1.0.2:8080", "hook output priority -99; " + jump, "hook prerouting priority dstnat + 1; " + jump}
	eventually(t, ns, has...)
	for _, edit := range []string{
		"delete table inet tinylet", "flush ruleset", "flush table inet tinylet",
		"flush chain inet tinylet services-output", "flush chain inet tinylet services", "insert rule inet tinylet services-prerouting accept",
	} {
		err := netns.Do(ns, func() error { return exec.Command("nft", edit).Run() })
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually(t, ns, has...)
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s: mended after %v", edit, d)
		}
	}
}

// eventually waits until the table has all texts.
func eventually(t *testing.T, ns *os.File, texts ...string) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("the program nft is the witness of what the kernel has, and is not here")
	}
	var out []byte
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_ = netns.Do(ns, func() (err error) {
			out, err = exec.Command("nft", "list", "ruleset").CombinedOutput()
			return err
		})
		all := true
		for _, text := range texts {
			all = all && bytes.Contains(out, []byte(text))
		}
		if all {
			return
		}
	}
	t.Fatalf("no %q in\n%s", texts, out)
}
