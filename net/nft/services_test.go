package nft

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

func addrs(all ...string) (a []netip.Addr) {
	for _, s := range all {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

func ends(all ...string) (e []netip.AddrPort) {
	for _, s := range all {
		e = append(e, netip.MustParseAddrPort(s))
	}
	return e
}

// someServices have everything that there is.
func someServices() []Service {
	return []Service{
		{Name: "shop/web:http", Protocol: TCP, IPs: addrs("10.96.0.1", "fd00:96::1"), Port: 80, NodePort: 30080,
			External: addrs("198.51.100.1"), Endpoints: ends("10.244.1.2:80", "10.244.1.3:80", "10.244.2.2:80", "[fd00:244:1::2]:80")},
		{Name: "shop/local", Protocol: TCP, IPs: addrs("10.96.0.2"), Port: 80, NodePort: 30081, ExternalLocal: true, Bridge: "pods0",
			Endpoints: ends("10.244.1.2:80", "10.244.2.2:80"), LocalEndpoints: ends("10.244.1.2:80")},
		{Name: "shop/elsewhere", Protocol: TCP, IPs: addrs("10.96.0.3"), Port: 80, NodePort: 30082, ExternalLocal: true, Bridge: "pods0",
			InternalLocal: true, Endpoints: ends("10.244.2.2:80")},
		{Name: "shop/none", Protocol: UDP, IPs: addrs("10.96.0.4", "fd00:96::4"), Port: 53, NodePort: 30083},
		{Name: "shop/sticky", Protocol: TCP, IPs: addrs("10.96.0.5"), Port: 80, Affinity: 3 * time.Hour,
			Endpoints: ends("10.244.1.2:80", "10.244.1.3:80")},
		{Name: "shop/sticky6", Protocol: SCTP, IPs: addrs("fd00:96::6"), Port: 80, Affinity: time.Minute,
			Endpoints: ends("[fd00:244:1::2]:80", "[fd00:244:1::3]:80")},
	}
}

func syncs(t testing.TB, table *Table, all ...Service) {
	t.Helper()
	if err := table.SyncServices(all, Apart{}); err != nil {
		t.Fatal(err)
	}
}

func TestServicesGolden(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	if err := table.SyncServices(nil, Apart{}); !errors.Is(err, ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
	ensure(t, table, both, true)
	syncs(t, table, someServices()...)
	golden(t, ns, "services.nft")
	if err := table.Verify(both); err != nil {
		t.Errorf("beside services: %v", err)
	}
}

func TestClearServices(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	clear := func() {
		t.Helper()
		if err := open(t, ns).ClearServices(); err != nil { // one that has written nothing
			t.Error(err)
		}
	}
	clear()
	ensure(t, table, both, true)
	before := list(t, ns)
	clear()
	syncs(t, table, someServices()...)
	clear()
	if got := list(t, ns); got != before {
		t.Errorf("left:\n%s\nwant:\n%s", got, before)
	}
	syncs(t, table, someServices()...)
	golden(t, ns, "services.nft")
}

// TestMendBesideServices is a call of the plugin, which knows of no services.
func TestMendBesideServices(t *testing.T) {
	for name, c := range map[string]struct {
		edit string
		lost bool
	}{
		"a rule":           {edit: "add rule inet tinylet guard accept"},
		"a chain":          {edit: "add chain inet tinylet spy { type filter hook input priority 0; policy drop; }"},
		"a rule's own set": {edit: "add rule inet tinylet guard tcp dport { 1, 2 } accept"},
		"a map":            {edit: "flush chain inet tinylet host-ports; delete map inet tinylet ports6at; add map inet tinylet ports6at { type ipv6_addr : ipv6_addr; }"},
		"asleep":           {edit: "add table inet tinylet { flags dormant; }", lost: true},
		"held by it":       {edit: "flush chain inet tinylet host-ports; delete map inet tinylet ports6at; add map inet tinylet ports6at { type ipv6_addr : ipv6_addr; }; add rule inet tinylet service-reject dnat ip6 to ip6 daddr map @ports6at", lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t)
			table, other := open(t, ns), open(t, ns)
			ensure(t, table, both, true)
			syncs(t, table, someServices()...)
			before := sorted(list(t, ns))
			run(t, ns, "nft", c.edit)
			if err := other.Repair(both, nil); err != nil {
				t.Fatal(err)
			}
			if err := other.Verify(both); err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(before, sorted(list(t, ns))); (d != "") != c.lost {
				t.Errorf("mended (-before +after):\n%s", d)
			}
			syncs(t, table, someServices()...)
			if d := cmp.Diff(before, sorted(list(t, ns))); d != "" {
				t.Errorf("services again (-before +after):\n%s", d)
			}
		})
	}
}

// TestServicesStayAfterError has the host ports be unknown at first.
func TestServicesStayAfterError(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	syncs(t, table, someServices()...)
	before := sorted(list(t, ns))
	unknown, calls := errors.New("unknown"), 0
	err := open(t, ns).Repair(both, func() ([]Port, error) {
		if calls++; calls == 1 {
			return nil, unknown
		}
		return nil, nil
	})
	if !errors.Is(err, unknown) {
		t.Errorf("error %v", err)
	}
	if d := cmp.Diff(before, sorted(list(t, ns))); d != "" {
		t.Errorf("services (-before +after):\n%s", d)
	}
}

// TestServicesEdited has somebody change what stands before all services.
func TestServicesEdited(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	syncs(t, table, someServices()...)
	before := sorted(list(t, ns))
	for _, edit := range []string{
		"flush chain inet tinylet services-prerouting",
		"insert rule inet tinylet services accept",
		"flush chain inet tinylet services-output; delete chain inet tinylet services-output",
		"flush chain inet tinylet service-reject; add rule inet tinylet service-reject accept",
		"add rule inet tinylet services-postrouting accept",
	} {
		run(t, ns, "nft", edit)
		syncs(t, table, someServices()...)
		if d := cmp.Diff(before, sorted(list(t, ns))); d != "" {
			t.Errorf("%s (-before +after):\n%s", edit, d)
		}
	}
}

// An agent of another version may have made the set of an endpoint's clients in
// another way.
func TestClientsOfAnotherLayout(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	sticky := Service{Name: "sticky", Protocol: TCP, IPs: addrs("10.96.0.3"), Port: 80, Affinity: time.Hour, Endpoints: ends("10.244.1.2:80")}
	syncs(t, table, sticky)
	before := sorted(list(t, ns))
	_, sets, err := table.named(ofServices)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(sets, func(name string) bool { return strings.Contains(name, "10.244.1.2") })
	if i < 0 {
		t.Fatalf("no set of clients in %q", sets)
	}
	if err := table.ClearServices(); err != nil {
		t.Fatal(err)
	}
	run(t, ns, "nft", `add set inet tinylet `+sets[i]+` { type ipv6_addr; size 7; flags timeout, dynamic; }`)
	syncs(t, table, sticky)
	if d := cmp.Diff(before, sorted(list(t, ns))); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
}

// TestClaims has a service name the cluster IP and the port of another, which
// is behind it by name.
func TestClaims(t *testing.T) {
	p, err := plan([]Service{
		{Name: "foe/a", Protocol: TCP, IPs: addrs("10.96.0.9"), External: addrs("10.96.0.1", "198.51.100.1"), Port: 443, Endpoints: ends("10.244.6.6:443")},
		{Name: "kube/api", Protocol: TCP, IPs: addrs("10.96.0.1"), External: addrs("198.51.100.1"), Port: 443, Endpoints: ends("10.244.1.2:6443")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]string{"10.96.0.1": "kube/api", "10.96.0.9": "foe/a", "198.51.100.1": "foe/a"} {
		e := entry{vipMap(ipv4).Name, string(appendPort(netip.MustParseAddr(ip).AsSlice(), TCP, 443))}
		if got := p.verdicts[e].Chain; !strings.HasSuffix(got, want) {
			t.Errorf("%s leads to %q, want %s", ip, got, want)
		}
	}
}

func list(t testing.TB, ns *os.File) string {
	t.Helper()
	return run(t, ns, "nft", "list", "table", "inet", tableName)
}

// sorted are the lines in order: the kernel lists elements and chains in any.
func sorted(text string) []string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		words := strings.Split(strings.TrimSpace(lines[i]), ", ")
		slices.Sort(words)
		lines[i] = strings.Join(words, ", ")
	}
	slices.Sort(lines)
	return lines
}

// TestServicesConverge goes through changes, each from what was there before,
// and compares with a table that has made the same from nothing.
func TestServicesConverge(t *testing.T) {
	ns, fresh := nstest.New(t), nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	base := someServices()
	edit := func(i int, change func(s *Service)) []Service {
		all := someServices()
		change(&all[i])
		return all
	}
	for name, all := range map[string][]Service{
		"none":             nil,
		"all":              base,
		"half":             base[2:],
		"other endpoints":  edit(0, func(s *Service) { s.Endpoints = s.Endpoints[1:3] }),
		"one endpoint":     edit(0, func(s *Service) { s.Endpoints = s.Endpoints[:1] }),
		"no endpoints":     edit(0, func(s *Service) { s.Endpoints = nil }),
		"some endpoints":   edit(3, func(s *Service) { s.Endpoints = ends("10.244.1.2:53", "[fd00:244:1::2]:53") }),
		"another port":     edit(0, func(s *Service) { s.Port, s.NodePort = 81, 0 }),
		"local":            edit(0, func(s *Service) { s.ExternalLocal = true }),
		"not local":        edit(1, func(s *Service) { s.ExternalLocal = false }),
		"another bridge":   edit(1, func(s *Service) { s.Bridge = "pods1" }),
		"no bridge":        edit(1, func(s *Service) { s.Bridge = "" }),
		"no local one":     edit(1, func(s *Service) { s.LocalEndpoints = nil }),
		"sticky":           edit(1, func(s *Service) { s.Affinity = time.Minute }),
		"not sticky":       edit(4, func(s *Service) { s.Affinity = 0 }),
		"sticky for less":  edit(4, func(s *Service) { s.Affinity = time.Second }),
		"sticky to more":   edit(4, func(s *Service) { s.Endpoints = append(s.Endpoints, ends("10.244.1.9:80")...) }),
		"sticky to less":   edit(4, func(s *Service) { s.Endpoints = s.Endpoints[1:] }),
		"another protocol": edit(5, func(s *Service) { s.Protocol = UDP }),
		"swapped addresses": edit(0, func(s *Service) {
			s.IPs, s.External = s.External, s.IPs
		}),
		"claimed twice": edit(2, func(s *Service) { s.IPs, s.NodePort = base[0].IPs, 30080 }),
		"named by a foe": edit(0, func(s *Service) {
			s.Name = "x\"; flush ruleset\n" + strings.Repeat("y", 500)
		}),
		"mapped addresses": edit(0, func(s *Service) { s.IPs = addrs("::ffff:10.96.0.1", "10.96.0.1", "fd00:96::1") }),
	} {
		t.Run(name, func(t *testing.T) {
			syncs(t, table, all...)
			syncs(t, table, all...)
			other := open(t, fresh)
			ensure(t, other, both, other.services == nil && !there(t, other))
			syncs(t, other, all...)
			if d := cmp.Diff(sorted(list(t, fresh)), sorted(list(t, ns))); d != "" {
				t.Errorf("(-from nothing +from what was before):\n%s", d)
			}
		})
	}
	syncs(t, table, base...)
	for _, break_ := range []string{
		"flush table inet tinylet",
		"flush map inet tinylet services4",
		"flush ruleset",
	} {
		run(t, ns, "nft", break_)
		if _, err := table.Ensure(both, nil); err != nil {
			t.Fatal(err)
		}
		all := edit(0, func(s *Service) { s.Endpoints, s.Port = s.Endpoints[:2], 81 })
		syncs(t, table, all...)
		other := open(t, fresh)
		syncs(t, other, all...)
		if d := cmp.Diff(sorted(list(t, fresh)), sorted(list(t, ns))); d != "" {
			t.Errorf("%s: (-want +got):\n%s", break_, d)
		}
		syncs(t, table, base...)
	}
	if err := table.Repair(both, nil); err != nil {
		t.Fatal(err)
	}
	syncs(t, table, base...)
	if err := table.Verify(both); err != nil {
		t.Error(err)
	}
}

func there(t testing.TB, table *Table) bool {
	t.Helper()
	return table.Verify(both) == nil
}

func TestBadServices(t *testing.T) {
	table := made(t)
	syncs(t, table, someServices()...)
	for name, spoil := range map[string]func(s *Service){
		"no name":       func(s *Service) { s.Name = "" },
		"no port":       func(s *Service) { s.Port = 0 },
		"protocol":      func(s *Service) { s.Protocol = 1 },
		"bridge":        func(s *Service) { s.Bridge = "a/b" },
		"address":       func(s *Service) { s.IPs = []netip.Addr{{}} },
		"any address":   func(s *Service) { s.External = addrs("0.0.0.0") },
		"endpoint":      func(s *Service) { s.Endpoints = []netip.AddrPort{{}} },
		"endpoint's":    func(s *Service) { s.LocalEndpoints = ends("10.244.1.2:0") },
		"zone":          func(s *Service) { s.IPs = addrs("fe80::1%eth0") },
		"twice":         func(s *Service) { s.Name = "shop/local" },
		"affinity":      func(s *Service) { s.Affinity = -time.Second },
		"long affinity": func(s *Service) { s.Affinity = 25 * time.Hour },
	} {
		all := someServices()
		spoil(&all[0])
		if err := table.SyncServices(all, Apart{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// spread asks often, and counts the answers.
func spread(n *network, ns *os.File, protocol, addr string, times int) map[string]int {
	n.Helper()
	answers := map[string]int{}
	for range times {
		answers[n.ask(ns, protocol, addr, patience)]++
	}
	return answers
}

func TestServicesTraffic(t *testing.T) {
	n, table := reach(t, both)
	// The machine outside is another node with a pod, which the route names.
	n.ip(n.outside, "addr add 10.244.2.2/32 dev lo", "addr add fd00:244:1:9::2/128 dev lo", "route add 10.96.0.0/16 via 192.0.2.1", "route add 198.51.100.0/24 via 192.0.2.1", "route add 10.244.1.0/24 via 192.0.2.1", "route add fd00:96::/64 via 2001:db8::1")
	n.ip(n.host, "route add default via 192.0.2.2", "route add default via 2001:db8::2")
	all := []Service{
		{Name: "one", Protocol: TCP, IPs: addrs("10.96.0.1", "fd00:96::1"), External: addrs("198.51.100.1"), Port: 8000, NodePort: 30080,
			Endpoints: ends("10.244.1.2:80", "[fd00:244:1::2]:80")},
		{Name: "one", Protocol: UDP, IPs: addrs("10.96.0.1", "fd00:96::1"), External: addrs("198.51.100.1"), Port: 8000, NodePort: 30080,
			Endpoints: ends("10.244.1.2:80", "[fd00:244:1::2]:80")},
		{Name: "two", Protocol: TCP, IPs: addrs("10.96.0.2"), Port: 80, Endpoints: ends("10.244.1.2:80", "10.244.1.3:80")},
		{Name: "sticky", Protocol: TCP, IPs: addrs("10.96.0.3"), Port: 80, NodePort: 30083, Affinity: time.Hour, Endpoints: ends("10.244.1.2:80", "10.244.1.3:80")},
		{Name: "none", Protocol: TCP, IPs: addrs("10.96.0.4", "fd00:96::4"), Port: 80, NodePort: 30084},
		{Name: "none", Protocol: UDP, IPs: addrs("10.96.0.4", "fd00:96::4"), Port: 80, NodePort: 30084},
		{Name: "local", Protocol: TCP, IPs: addrs("10.96.0.5"), Port: 80, NodePort: 30085, ExternalLocal: true,
			Endpoints: ends("10.244.1.3:80", "10.244.2.2:80"), LocalEndpoints: ends("10.244.1.3:80")},
		{Name: "elsewhere", Protocol: TCP, IPs: addrs("10.96.0.6"), Port: 80, External: addrs("198.51.100.6"), NodePort: 30086, ExternalLocal: true, Bridge: "pods0", Endpoints: ends("10.244.2.2:80")},
		{Name: "remote", Protocol: TCP, IPs: addrs("10.96.0.7"), Port: 80, NodePort: 30087, Endpoints: ends("10.244.2.2:80")},
	}
	syncs(t, table, all...)
	t.Run("cluster IPs", func(t *testing.T) {
		n := *n
		n.TB = t
		n.answers(n.b, "10.96.0.1:8000", "a 10.244.1.1") // masqueraded, as both are on the bridge
		n.answers(n.a, "10.96.0.1:8000", "a 10.244.1.1")
		n.answers(n.b, "[fd00:96::1]:8000", "a fd00:244:1::1")
		if got := n.ask(n.host, "tcp", "10.96.0.7:80", patience); got != "outside 192.0.2.1" {
			t.Errorf("from the host: %q", got)
		}
	})
	t.Run("ports of the machine", func(t *testing.T) {
		n := *n
		n.TB = t
		n.answers(n.outside, "192.0.2.1:30080", "a 10.244.1.1")
		n.answers(n.outside, "[2001:db8::1]:30080", "a fd00:244:1::1")
		n.answers(n.outside, "198.51.100.1:8000", "a 10.244.1.1")
		n.answers(n.host, "192.0.2.1:30080", "a 10.244.1.1")
		n.answers(n.b, "192.0.2.1:30080", "a 10.244.1.1")
		n.answers(n.host, "127.0.0.1:30080", "")
		if got := n.ask(n.b, "tcp", "192.0.2.1:30087", patience); got != "outside 192.0.2.1" {
			t.Errorf("to another node: %q", got)
		}
		if got := n.ask(n.outside, "tcp", "192.0.2.1:30085", patience); got != "b 192.0.2.2" {
			t.Errorf("local: %q", got)
		}
		for _, addr := range []string{"192.0.2.1:30086", "198.51.100.6:80"} { // who is here is led to all
			if got := n.ask(n.a, "tcp", addr, patience); got != "outside 10.244.1.2" {
				t.Errorf("from a pod to %s on another node: %q", addr, got)
			}
			if got := n.ask(n.host, "tcp", addr, patience); got != "outside 192.0.2.1" {
				t.Errorf("from here to %s on another node: %q", addr, got)
			}
		}
		began := time.Now()
		if got := n.ask(n.outside, "tcp", "192.0.2.1:30086", patience/4); got != "" || time.Since(began) < patience/4 {
			t.Errorf("no local endpoint: %q after %v", got, time.Since(began))
		}
	})
	t.Run("no endpoints", func(t *testing.T) {
		n := *n
		n.TB = t
		for _, from := range []*os.File{n.a, n.host, n.outside} {
			for _, protocol := range []string{"tcp", "udp"} {
				for _, addr := range []string{"10.96.0.4:80", "192.0.2.1:30084", "[fd00:96::4]:80", "[2001:db8::1]:30084"} {
					began := time.Now()
					if got := n.ask(from, protocol, addr, patience); got != "" || time.Since(began) > patience/2 {
						t.Errorf("%s %s: %q after %v", protocol, addr, got, time.Since(began))
					}
				}
			}
		}
	})
	t.Run("spread", func(t *testing.T) {
		n := *n
		n.TB = t
		got := spread(&n, n.outside, "tcp", "10.96.0.2:80", 40)
		if got["a 192.0.2.2"] < 5 || got["b 192.0.2.2"] < 5 || len(got) != 2 {
			t.Errorf("answers %v", got)
		}
	})
	t.Run("affinity", func(t *testing.T) {
		n := *n
		n.TB = t
		first := spread(&n, n.outside, "tcp", "10.96.0.3:80", 20)
		if len(first) != 1 {
			t.Errorf("answers %v", first)
		}
		more := slices.Clone(all)
		more[3].Endpoints = ends("10.244.1.2:80", "10.244.1.3:80", "10.244.1.77:80")
		syncs(t, table, more...)
		if got := spread(&n, n.outside, "tcp", "10.96.0.3:80", 20); !cmp.Equal(got, first) {
			t.Errorf("with one more endpoint: %v, and %v before", got, first)
		}
		for range 6 {
			table.services = nil // as for an agent that was started again
			syncs(t, table, more...)
			if got := spread(&n, n.outside, "tcp", "10.96.0.3:80", 5); len(got) != 1 || got[slices.Collect(maps.Keys(first))[0]] != 5 {
				t.Fatalf("after a restart: %v, and %v before", got, first)
			}
		}
		for _, pod := range []string{"a", "b"} {
			more[3].Endpoints = ends(map[string]string{"a": "10.244.1.2:80", "b": "10.244.1.3:80"}[pod])
			syncs(t, table, more...)
			if got := spread(&n, n.outside, "tcp", "10.96.0.3:80", 5); got[pod+" 192.0.2.2"] != 5 {
				t.Errorf("with %s alone: %v", pod, got)
			}
		}
	})
	t.Run("datagrams", func(t *testing.T) {
		n := *n
		n.TB = t
		socket := n.dial(n.outside, "udp", "10.96.0.1:8000")
		for _, c := range []struct{ pod, name string }{{"10.244.1.2:80", "a "}, {"10.244.1.3:80", "b "}, {"10.244.1.2:80", "a "}} {
			more := slices.Clone(all)
			more[1].Endpoints = ends(c.pod)
			if c.name == "b " {
				table.services = nil // as for an agent that was started again
			}
			syncs(t, table, more...)
			if got := n.hear(socket, patience); !strings.HasPrefix(got, c.name) {
				t.Errorf("%q, want %s", got, c.name)
			}
		}
	})
}

func BenchmarkSyncServices(b *testing.B) {
	for _, count := range []int{10, 500} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			table := made(b)
			var all []Service
			for i := range count {
				all = append(all, Service{
					Name: fmt.Sprintf("ns/service-%d:http", i), Protocol: TCP, Port: 80,
					IPs: addrs(fmt.Sprintf("10.96.%d.%d", i/200, 1+i%200)), Endpoints: ends("10.244.1.2:80", "10.244.1.3:80"),
				})
			}
			two := [][]netip.AddrPort{ends("10.244.1.2:80", "10.244.1.3:80"), ends("10.244.1.3:80", "10.244.1.4:80")}
			syncs(b, table, all...)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				all[0].Endpoints = two[(i+1)%2]
				syncs(b, table, all...)
			}
		})
	}
}

// TestApart has services claim what none may have, as if they had got there
// before anybody left them out.
func TestApart(t *testing.T) {
	n, table := reach(t, both)
	n.serve(n.outside, ":6443", "API server")
	n.serve(n.host, ":10250", "node")
	claims := Service{Name: "evil/api", Protocol: TCP, IPs: addrs("10.96.0.1"), External: addrs("192.0.2.2", "2001:db8::2", "192.0.2.1"), Port: 6443,
		Endpoints: ends("10.244.1.2:80", "[fd00:244:1::2]:80")}
	own := Service{Name: "evil/own", Protocol: TCP, IPs: addrs("10.96.0.2"), External: addrs("192.0.2.1", "2001:db8::1"), Port: 10250, NodePort: 10250,
		Endpoints: ends("10.244.1.2:80", "[fd00:244:1::2]:80")}
	asks := func(ns *os.File, addr, want string) {
		t.Helper()
		if got, _, _ := strings.Cut(n.ask(ns, "tcp", addr, patience), " 1"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	syncs(t, table, claims, own)
	asks(n.host, "192.0.2.2:6443", "a") // that is what is at stake
	asks(n.host, "192.0.2.1:10250", "a")
	apart := Apart{Hosts: addrs("192.0.2.2", "2001:db8::2", "::ffff:192.0.2.2"), Ports: []uint16{10250, 10248, 10250}}
	if err := table.SyncServices([]Service{claims, own}, apart); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []*os.File{n.host, n.b} {
		asks(ns, "192.0.2.2:6443", "API server")
		asks(ns, "[2001:db8::2]:6443", "API server")
		asks(ns, "192.0.2.1:10250", "node")
		asks(ns, "[2001:db8::1]:10250", "node")
	}
	asks(n.outside, "192.0.2.1:10250", "node")
	asks(n.host, "192.0.2.9:10250", "node") // by the port of the node
	// What they may have they have.
	asks(n.b, "10.96.0.1:6443", "a")
	asks(n.host, "192.0.2.1:6443", "a")
	asks(n.b, "10.96.0.2:10250", "a")
	if err := table.SyncServices([]Service{claims, own}, apart); err != nil {
		t.Fatal(err)
	}
	// Others come to be known.
	apart.Hosts = addrs("192.0.2.3")
	if err := table.SyncServices([]Service{claims, own}, apart); err != nil {
		t.Fatal(err)
	}
	asks(n.host, "192.0.2.2:6443", "a")
	if err := table.Verify(both); err != nil {
		t.Error(err)
	}
}
