package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestUsable(t *testing.T) {
	for _, row := range []struct {
		texts []string
		want  string // the networks, or a part of the error
	}{
		{[]string{"10.1.0.0/24"}, "[10.1.0.0/24]"},
		{[]string{"10.1.0.9/24", "fd00:1::/64"}, "[10.1.0.0/24 fd00:1::/64]"},
		{[]string{"10.1.0.0/24", "10.1"}, `"10.1" of the Node is not a network`},
		{[]string{"10.1.0.0"}, "not a network"},
		{[]string{""}, "not a network"},
		{[]string{"::ffff:10.1.0.0/120"}, "not a network"},
		{[]string{strings.Repeat("x\x1b", 1000)}, `x\x1b`},
		{[]string{"10.1.0.0/24", "10.2.0.0/24"}, "the same family"},
		{[]string{"10.1.0.0/24", "10.1.0.0/16"}, "the same family"},
		{[]string{"10.1.0.0/31"}, "too small for a gateway and a pod"},
		{[]string{"0.0.0.0/0"}, "not usable for pods"},
		{[]string{"127.0.0.0/8"}, "not usable for pods"},
		{[]string{"169.254.0.0/16"}, "not usable for pods"},
	} {
		networks, err := parsePodCIDRs(row.texts)
		got := fmt.Sprint(networks)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, row.want) || len(got) > 400 || (networks == nil) != (err != nil) {
			t.Errorf("%.40q: %s", row.texts, got)
		}
	}
}

// TestNoUse: unusable podCIDRs do not replace the last ones, are logged once, and
// cause no frequent retries.
func TestNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, nil)
		l.Assigned([]string{"bad"})
		l.run(t, func() {
			if l.written(t) != "" || !strings.Contains(l.Problem(), `"bad"`) {
				t.Errorf("configuration %q, problem %q", l.written(t), l.Problem())
			}
			l.Assigned([]string{"10.1.0.0/24"})
			l.resync()
			if got := l.written(t); got != "pods0 10.1.0.0/24" || l.Problem() != "" {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
			l.log.Reset()
			l.Assigned([]string{"10.1.0.0/24", "10.2.0.0/24"})
			looked := l.shelf.looks()
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := l.written(t); got != "pods0 10.1.0.0/24" || !strings.Contains(l.Problem(), "the same family") {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
			if n := l.shelf.looks() - looked; n < 10 || n > 25 {
				t.Errorf("looked %d times in an hour", n)
			}
			if n := strings.Count(l.log.String(), "level=WARN msg=\"pod network"); n != 1 {
				t.Errorf("told %d times: %s", n, l.log)
			}
			l.Assigned([]string{"10.1.0.0/24"})
			l.resync()
			if l.Problem() != "" {
				t.Errorf("problem %q", l.Problem())
			}
		})
	})
}

// TestUnanswered: each request to the server fails with another error.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := newLab(t, func(c *Config) {
			c.Refresh = func(context.Context) error { asked++; return fmt.Errorf("read from port %d", asked) }
		})
		l.run(t, func() {
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if asked < 15 || asked > 35 {
				t.Errorf("asked %d times in two hours", asked)
			}
			if n := strings.Count(l.log.String(), "level=WARN msg=\"pod network"); n != 1 || !strings.Contains(l.Problem(), fmt.Sprint("port ", asked)) {
				t.Errorf("told %d times, problem %q: %s", n, l.Problem(), l.log)
			}
		})
	})
}

// TestWorld: the uplink has an address in the pod network, as DHCP may assign at
// any time.
func TestWorld(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.7")
	near, router := netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("10.2.0.1")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		world, fail := []netip.Addr{near}, error(nil)
		l := newLab(t, func(c *Config) {
			c.UplinkAddresses = func() ([]netip.Addr, error) {
				mu.Lock()
				defer mu.Unlock()
				return world, fail
			}
		})
		is := func(err error, now ...netip.Addr) {
			mu.Lock()
			defer mu.Unlock()
			world, fail = now, err
		}
		expect := func(step, configuration, problem string) {
			t.Helper()
			l.resync()
			if got := l.written(t); got != configuration || !strings.Contains(l.Problem(), problem) || (problem == "") != (l.Problem() == "") {
				t.Errorf("%s: configuration %q, problem %q", step, got, l.Problem())
			}
		}
		l.Assigned([]string{"10.1.0.0/24"})
		l.run(t, func() {
			if l.written(t) != "" || l.shelf.looks() != 0 {
				t.Errorf("configuration %q, ensured %d times", l.written(t), l.shelf.looks())
			}
			expect("the node's", "", "10.1.0.0/24 contains 10.1.0.7")
			is(nil)
			expect("the link is lost", "", "10.1.0.0/24 contains 10.1.0.7")
			is(nil, node)
			expect("another", "pods0 10.1.0.0/24", "")
			l.shelf.hold(entry("alive", "10.1.0.9", time.Hour))
			is(nil, near)
			looked := l.shelf.looks()
			expect("the node comes near", "pods0 10.1.0.0/24", "10.1.0.0/24 contains 10.1.0.7")
			if l.shelf.looks() != looked+1 {
				t.Error("what is in use is not mended")
			}
			is(nil, node, router)
			l.Assigned([]string{"10.2.0.0/24"})
			expect("the router's", "pods0 10.1.0.0/24", "10.2.0.0/24 contains 10.2.0.1")
			is(errors.New("no memory"))
			expect("the kernel fails", "pods0 10.1.0.0/24", "no memory")
			is(nil, node)
			expect("all is well", "pods0 10.2.0.0/24 kept 10.1.0.0/24", "")
		})
	})
}

// TestUplinkUnknown: the kernel does not list the addresses of the uplink for a while, whose
// end no event reports.
func TestUplinkUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 5 * time.Minute
		began := time.Now()
		l := newLab(t, func(c *Config) {
			c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			c.UplinkAddresses = func() ([]netip.Addr, error) {
				if time.Since(began) < outage {
					return nil, errors.New("no memory")
				}
				return nil, nil
			}
		})
		l.run(t, func() {
			time.Sleep(outage - time.Second)
			if l.written(t) != "" || l.Problem() != "no memory" {
				t.Errorf("configuration %q, problem %q", l.written(t), l.Problem())
			}
			time.Sleep(retryLimit + 2*time.Second)
			synctest.Wait()
			if got := l.written(t); got != "pods0 10.1.0.0/24" {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
		})
	})
}

// TestOthersChangeAllTheTime: others undo every change.
func TestOthersChangeAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *lab
		l = newLab(t, func(c *Config) {
			c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
			c.OnReady = []func(){func() { l.Trigger() }}
		})
		l.run(t, func() {
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := l.shelf.looks(); n < 60 || n > 121 {
				t.Errorf("looked %d times in a minute", n)
			}
		})
	})
}

// TestBegin: a change happens before the watches are established.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *Config) { c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")} })
		l.run(t, func() {
			time.Sleep(secondSyncDelay)
			synctest.Wait()
			if n := l.shelf.looks(); n != 2 {
				t.Errorf("looked %d times", n)
			}
			time.Sleep(resyncInterval - time.Second)
			synctest.Wait()
			if n := l.shelf.looks(); n != 2 {
				t.Errorf("looked %d times after a while", n)
			}
		})
	})
}

// TestFallback has a node that the API server never answers use the fallback, also after a
// restart, until podCIDRs are assigned. Pods keep their addresses.
func TestFallback(t *testing.T) {
	fallback := netip.MustParsePrefix("10.88.0.0/24")
	synctest.Test(t, func(t *testing.T) {
		var l *lab
		var asked atomic.Int32
		var answers atomic.Bool
		set := func(c *Config) {
			c.Fallback = []netip.Prefix{fallback}
			c.Refresh = func(context.Context) error {
				if asked.Add(1); !answers.Load() {
					return errors.New("no credentials")
				}
				l.Assigned(nil)
				return nil
			}
		}
		l = newLab(t, set)
		l.run(t, func() {
			time.Sleep(fallbackDelay - time.Second)
			synctest.Wait()
			if got := l.written(t); got != "" {
				t.Errorf("before the delay: configuration %q", got)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := l.written(t); got != "pods0 10.88.0.0/24" || !strings.Contains(l.Problem(), "no credentials") || !strings.Contains(l.Problem(), "until then pods get addresses of [10.88.0.0/24]") {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
		})
		folder := l.folder
		l = newLab(t, func(c *Config) { set(c); c.Settings.ConfigFolder = folder })
		l.folder = folder
		l.run(t, func() {
			asked.Store(0)
			l.shelf.hold(entry("alive", "10.88.0.9", time.Hour))
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			if got := l.written(t); got != "pods0 10.88.0.0/24" || asked.Load() < 15 || asked.Load() > 60 {
				t.Errorf("after a restart: configuration %q, asked %d times", got, asked.Load())
			}
			// The node is registered. Its podCIDR comes a second later.
			asked.Store(0)
			answers.Store(true)
			l.Assigned(nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := l.written(t); got != "pods0 10.88.0.0/24" || !strings.Contains(l.Problem(), "--allocate-node-cidrs") || asked.Load() < 3 || asked.Load() > 12 {
				t.Errorf("registered: configuration %q, problem %q, asked %d times", got, l.Problem(), asked.Load())
			}
			l.Assigned([]string{"10.244.1.0/24"})
			l.resync()
			if got := l.written(t); got != "pods0 10.244.1.0/24 kept 10.88.0.0/24" || l.Problem() != "" {
				t.Errorf("assigned: configuration %q, problem %q", got, l.Problem())
			}
		})
	})
}

// TestServerInPodNetwork: no pod network may hide the API server, the fallback included.
func TestServerInPodNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := netip.MustParseAddr("10.88.0.5")
		l := newLab(t, func(c *Config) {
			c.Fallback = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
			c.UplinkAddresses = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil }
			c.ServerAddresses = func() []netip.Addr { return []netip.Addr{server} }
			c.Refresh = func(context.Context) error { return errors.New("no route") }
		})
		l.run(t, func() {
			time.Sleep(2 * fallbackDelay)
			synctest.Wait()
			if got := l.written(t); got != "" || !strings.Contains(l.Problem(), "10.88.0.0/24 contains 10.88.0.5, an address of the node, of its router or of the API server") {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
			l.Assigned([]string{"10.88.0.0/16"})
			l.resync()
			if got := l.written(t); got != "" || !strings.Contains(l.Problem(), "10.88.0.0/16 contains 10.88.0.5") {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
			l.Assigned([]string{"10.244.1.0/24"})
			l.resync()
			if got := l.written(t); got != "pods0 10.244.1.0/24" || l.Problem() != "" {
				t.Errorf("configuration %q, problem %q", got, l.Problem())
			}
		})
	})
}
