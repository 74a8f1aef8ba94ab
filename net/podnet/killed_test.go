package podnet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
)

// errKilled is thrown where a process would have been killed.
var errKilled = errors.New("killed")

// kill sets a pod up and dies behind a step. No deferred undoing runs: what is
// thrown goes past Setup's own.
func (l *lab) kill(p Pod, step string) {
	l.Helper()
	l.net.step = func(name string) {
		if name == step {
			panic(errKilled)
		}
	}
	defer func() { l.net.step = nil }()
	err := l.on(func() (err error) {
		defer func() {
			if thrown := recover(); thrown != nil {
				err = errKilled
			}
		}()
		_, err = l.net.Setup(p)
		return err
	})
	if !errors.Is(err, errKilled) {
		l.Fatalf("it did not die behind %q: %v", step, err)
	}
}

// TestKilled has a call die behind each step, and what comes next find what it
// has left.
func TestKilled(t *testing.T) {
	ports := func(p *Pod) {
		p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}}
	}
	for _, step := range []string{"lease", "bridge", "restricted", "veth", "attached", "table"} {
		t.Run(step, func(t *testing.T) {
			l := newLab(t, nil)
			p := l.newPod()
			ports(&p.Pod)
			l.kill(p.Pod, step)
			t.Run("set up again", func(t *testing.T) {
				l.must(func() (err error) {
					p.result, err = l.net.Setup(p.Pod)
					return err
				})
				serve(t, p.ns, "tcp", 80)
				if seen, err := ask(l.outside, "tcp", hostOutside+":8080"); err != nil || seen != outside {
					t.Errorf("seen as %q: %v", seen, err)
				}
				l.must(func() error { return l.net.Check(p.Pod) })
			})
			l.must(func() error { return l.net.Teardown(p.ID) })
			if left := l.state(); left != "" {
				t.Errorf("left after it was taken down:\n%s", left)
			}
			l.kill(p.Pod, step)
			l.must(func() error { return l.net.Teardown(p.ID) })
			if left := l.state(); left != "" {
				t.Errorf("left after what was half made was taken down:\n%s", left)
			}
			l.kill(p.Pod, step)
			kept := l.start(nil)
			l.must(func() error {
				_, err := l.net.Collect(func(e Entry) bool { return e.ID == kept.ID })
				return err
			})
			if left := l.state(); strings.Count(left, "\n") != 2 || !strings.Contains(left, "default/p2") {
				t.Errorf("left after a collection:\n%s", left)
			}
		})
	}
}

// TestCollectWithoutLease is what the kernel has for nobody.
func TestCollectWithoutLease(t *testing.T) {
	l := newLab(t, nil)
	p := l.start(func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}} })
	l.run("ip", "link", "add", "veth12345678", "type", "veth", "peer", "name", "x")
	l.run("ip", "link", "set", "veth12345678", "master", "pods0")
	if err := l.net.leases.Release(p.Owner()); err != nil {
		t.Fatal(err)
	}
	l.must(func() error {
		_, err := l.net.Collect(func(Entry) bool { return true })
		return err
	})
	left := l.state()
	if strings.Contains(left, p.result.Host.Name) || strings.Contains(left, "port") || !strings.Contains(left, "veth12345678") {
		t.Errorf("left, of which one link is somebody else's:\n%s", left)
	}
}

// TestCollectWithoutBridge has the bridge deleted, and a pod whose lease is lost.
func TestCollectWithoutBridge(t *testing.T) {
	l := newLab(t, nil)
	collect := func() {
		l.must(func() error {
			_, err := l.net.Collect(func(Entry) bool { return true })
			return err
		})
	}
	collect()
	if left := l.run("nft", "list", "ruleset"); left != "" {
		t.Errorf("without pods it created\n%s", left)
	}
	p := l.start(func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}} })
	kept := l.start(nil)
	if err := l.net.leases.Release(p.Owner()); err != nil {
		t.Fatal(err)
	}
	l.run("ip", "link", "del", "pods0")
	collect()
	if left := l.state(); strings.Count(left, "\n") != 2 || !strings.Contains(left, "link "+kept.result.Host.Name) {
		t.Errorf("left:\n%s", left)
	}
}

// TestCollectAfterEnsure counts how often the source addresses of all pods are compared.
func TestCollectAfterEnsure(t *testing.T) {
	l := newLab(t, nil)
	gone := l.start(nil)
	opened := 0
	l.net.openSenders = func() (*nft.Senders, error) {
		opened++
		return nft.OpenSenders()
	}
	for i, want := range []int{1, 2, 5} { // the last one also removes the source addresses of a pod
		all := i < 2
		if i != 1 {
			l.must(l.net.Ensure)
		}
		l.must(func() error {
			_, err := l.net.Collect(func(e Entry) bool { return all || e.ID != gone.ID })
			return err
		})
		if opened != want {
			t.Errorf("collection %d: opened %d times, want %d", i, opened, want)
		}
	}
}

// TestMended has everything that pods share broken by somebody else.
func TestMended(t *testing.T) {
	for _, row := range []struct {
		name   string
		broken []string
		check  bool // Check sees it
	}{
		{"all rules flushed", []string{"nft", "flush", "ruleset"}, true},
		{"our table deleted", []string{"nft", "delete", "table", "inet", "tinylet"}, true},
		{"a rule more", []string{"nft", "insert", "rule", "inet", "tinylet", "prerouting", "accept"}, true},
		{"what pods send from flushed", []string{"nft", "flush", "table", "bridge", "tinylet"}, true},
		{"what a pod sends from deleted", []string{"nft", "flush", "set", "bridge", "tinylet", "addresses4"}, true},
		{"a port deleted", []string{"nft", "flush", "map", "inet", "tinylet", "ports4"}, true},
		{"the bridge down", []string{"ip", "link", "set", "pods0", "down"}, true},
		{"the bridge's address gone", []string{"ip", "addr", "flush", "dev", "pods0"}, true},
		{"no forwarding", []string{"sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, nil)
			p := l.start(func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}} })
			serve(t, p.ns, "tcp", 80)
			l.must(l.net.Ensure)
			l.run(row.broken...)
			if err := l.on(func() error { return l.net.Check(p.Pod) }); row.check != errors.Is(err, ErrChanged) {
				t.Errorf("check: %v", err)
			}
			l.must(l.net.Ensure)
			if seen, err := ask(l.outside, "tcp", hostOutside+":8080"); err != nil || seen != outside {
				t.Errorf("seen as %q: %v", seen, err)
			}
			l.must(func() error { return l.net.Check(p.Pod) })
		})
	}
}

// TestMendedBesideTeardown has a pod go while the ports of all are put back.
func TestMendedBesideTeardown(t *testing.T) {
	for _, row := range []struct {
		name   string
		broken []string
		mend   func(l *lab)
	}{
		{"nothing is missing", []string{"true"}, func(l *lab) { l.must(l.net.Ensure) }},
		{"our table deleted", []string{"nft", "delete", "table", "inet", "tinylet"}, func(l *lab) { l.must(l.net.Ensure) }},
		{"a rule more", []string{"nft", "insert", "rule", "inet", "tinylet", "prerouting", "accept"}, func(l *lab) { l.must(l.net.Ensure) }},
		{"before another pod", []string{"nft", "delete", "table", "inet", "tinylet"}, func(l *lab) {
			p := l.start(nil)
			l.must(func() error { return l.net.Teardown(p.ID) })
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLab(t, nil)
			p := l.start(func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}} })
			l.run(row.broken...)
			l.net.step = func(name string) {
				if name == "leases listed" {
					l.net.step = nil
					if err := l.net.Teardown(p.ID); err != nil {
						t.Error(err)
					}
				}
			}
			row.mend(l)
			if l.net.step != nil {
				t.Error("no leases were listed")
			}
			if left := l.state(); left != "" {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}

// TestMendedBesideDead has the table gone while a pod lives, and there is the
// lease of one that wanted the same port and was killed: who lives keeps it, and
// others are not kept from their network.
func TestMendedBesideDead(t *testing.T) {
	l := newLab(t, func(c *cni.Config) { c.Ranges = c.Ranges[:1] })
	port := []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}}
	lives := l.start(func(p *Pod) { p.Ports, p.Addresses = port, addrs("10.88.0.200") })
	dead := l.newPod()
	dead.Ports, dead.Addresses = port, addrs("10.88.0.100")
	l.kill(dead.Pod, "attached")
	l.run("nft", "delete", "table", "inet", "tinylet")
	l.start(nil)
	l.must(func() error { return l.net.Check(lives.Pod) })
	l.must(l.net.Ensure)
	l.must(func() error { return l.net.Check(lives.Pod) })
}

// TestRefused is what must fail, and leave nothing.
func TestRefused(t *testing.T) {
	l := newLab(t, func(c *cni.Config) { c.Ranges = c.Ranges[:1] })
	first := l.start(func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 80}} })
	serve(t, l.host, "tcp", 7070)
	before := l.state()
	for _, row := range []struct {
		name   string
		change func(p *Pod)
		check  func(error) bool
	}{
		{"a port of another pod", func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8080, Target: 1}} }, func(err error) bool {
			var taken *nft.PortTaken
			return errors.As(err, &taken) && taken.Owner == first.Owner()
		}},
		{"a port of a process", func(p *Pod) { p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 7070, Target: 1}} }, func(err error) bool {
			var used *PortInUse
			return errors.As(err, &used)
		}},
		{"a port on an address of another family", func(p *Pod) {
			p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 8081, Target: 1, HostIP: addrs("fd00::1")[0]}}
		}, func(err error) bool { return strings.Contains(fmt.Sprint(err), "no address of that family") }},
		{"an address of another pod", func(p *Pod) { p.Addresses = addrs(first.address(false)) }, func(err error) bool {
			var taken ipam.ErrAllocated
			return errors.As(err, &taken) && taken.Owner == first.Owner()
		}},
		{"an address of elsewhere", func(p *Pod) { p.Addresses = addrs("10.1.1.1") }, func(err error) bool { return err != nil }},
		{"no namespace", func(p *Pod) { p.NetNS = "/proc/self/none" }, func(err error) bool { return err != nil }},
		{"what is no namespace", func(p *Pod) { p.NetNS = "/etc/passwd" }, func(err error) bool { return err != nil }},
		{"no name of an interface", func(p *Pod) { p.Interface = "../x" }, func(err error) bool { return err != nil }},
		{"an interface that is there", func(p *Pod) { p.Interface = "lo" }, func(err error) bool { return err != nil }},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := l.newPod()
			row.change(&p.Pod)
			err := l.on(func() error { _, err := l.net.Setup(p.Pod); return err })
			if !row.check(err) {
				t.Errorf("error %v", err)
			}
			if after := l.state(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestFailedTeardown has Setup fail, and its Teardown too. The error is one line of the
// runtime's log.
func TestFailedTeardown(t *testing.T) {
	l := newLab(t, nil)
	lacks := errors.New("no bridge family")
	l.net.openSenders = func() (*nft.Senders, error) { return nil, lacks }
	p := l.newPod()
	err := l.on(func() error { _, err := l.net.Setup(p.Pod); return err })
	if text := fmt.Sprint(err); strings.Count(text, lacks.Error()) != 2 || strings.Contains(text, "\n") || !errors.Is(err, lacks) {
		t.Errorf("error %q", text)
	}
}

// TestExhausted is a network with room for one pod.
func TestExhausted(t *testing.T) {
	l := newLab(t, func(c *cni.Config) {
		c.Ranges = []ipam.Range{{Prefix: prefix("10.88.0.0/30")}}
	})
	a := l.start(nil)
	p := l.newPod()
	err := l.on(func() error { _, err := l.net.Setup(p.Pod); return err })
	var exhausted ipam.ErrExhausted
	if !errors.As(err, &exhausted) {
		t.Fatalf("a second one: %v", err)
	}
	l.must(func() error { return l.net.Teardown(a.ID) })
	l.must(func() (err error) { p.result, err = l.net.Setup(p.Pod); return err })
	if got := p.result.Addresses[0].Addr(); got.String() != a.address(false) {
		t.Errorf("the second one has %v, the first one had %s", got, a.address(false))
	}
}

// TestMoved is a node whose network of pods becomes another while a pod lives.
func TestMoved(t *testing.T) {
	l := newLab(t, func(c *cni.Config) { c.Ranges = c.Ranges[:1] })
	old := l.start(nil)
	serve(t, l.outside, "tcp", 70)
	moved := l.net.cfg
	moved.Kept, moved.Ranges = moved.Ranges, []ipam.Range{{Prefix: prefix("10.99.0.0/24")}}
	n, err := New(moved.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	l.net = n
	l.must(l.net.Ensure)
	p := l.start(nil)
	if !prefix("10.99.0.0/24").Contains(p.result.Addresses[0].Addr()) {
		t.Errorf("a new pod has %v", p.result.Addresses)
	}
	serve(t, p.ns, "tcp", 80)
	for _, ns := range []*pod{old, p} {
		if seen, err := ask(ns.ns, "tcp", outside+":70"); err != nil || seen != hostOutside {
			t.Errorf("seen as %q: %v", seen, err)
		}
		if _, err := ask(ns.ns, "tcp", p.address(false)+":80"); err != nil {
			t.Error(err)
		}
	}
	both := []ipam.Range{{Prefix: prefix(podsV4)}, {Prefix: prefix("10.99.0.0/24")}}
	if used, err := l.net.Used(append(both, ipam.Range{Prefix: prefix("10.77.0.0/24")})); err != nil || !slices.Equal(used, both) {
		t.Errorf("used are %v, %v", used, err)
	}
}
