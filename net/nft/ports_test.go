package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

// made is a table in a namespace of its own.
func made(t testing.TB) *Table {
	t.Helper()
	table := open(t, nstest.New(t))
	ensure(t, table, both, true)
	return table
}

func taken(t *testing.T, table *Table, owner string, ports ...Port) {
	t.Helper()
	err := table.AddPorts(ports)
	var other *PortTaken
	if !errors.As(err, &other) || other.Owner != owner {
		t.Errorf("%v: %v, want it taken by %s", ports, err, owner)
	}
}

func TestPortsTaken(t *testing.T) {
	table := made(t)
	all := port(t, "", TCP, 80, "10.244.1.2:80", "a")
	one := port(t, "192.0.2.1", TCP, 81, "10.244.1.2:80", "a")
	six := port(t, "2001:db8::1", TCP, 82, "[fd00::2]:80", "a")
	add(t, table, all, one, six)
	for _, other := range []Port{
		port(t, "", TCP, 80, "10.244.1.3:80", "b"),
		port(t, "", TCP, 80, "10.244.1.2:80", "b"),
		port(t, "0.0.0.0", TCP, 80, "10.244.1.3:80", "b"),
		port(t, "192.0.2.1", TCP, 80, "10.244.1.3:80", "b"),
		port(t, "192.0.2.1", TCP, 81, "10.244.1.3:80", "b"),
		port(t, "::ffff:192.0.2.1", TCP, 81, "10.244.1.3:80", "b"),
		port(t, "", TCP, 81, "10.244.1.3:80", "b"),
		port(t, "::", TCP, 82, "[fd00::3]:80", "b"),
	} {
		taken(t, table, "a", port(t, "", TCP, 90, "10.244.1.3:80", "b"), other)
	}
	same(t, listed(t, table), []Port{all, one, six})
	free := []Port{
		port(t, "", UDP, 80, "10.244.1.3:80", "b"),
		port(t, "", TCP, 80, "[fd00::3]:80", "b"),
		port(t, "192.0.2.2", TCP, 81, "10.244.1.3:80", "b"),
		port(t, "", SCTP, 81, "10.244.1.3:80", "b"),
		port(t, "", TCP, 82, "10.244.1.3:80", "b"),
		port(t, "192.0.2.1", TCP, 80, "10.244.1.4:80", "a"),
		port(t, "", TCP, 81, "10.244.1.4:80", "c"),
	}
	add(t, table, free[:6]...)
	var other *PortTaken
	if err := table.AddPorts(free[6:]); !errors.As(err, &other) {
		t.Errorf("on all where two have one: %v", err)
	}
}

func TestPortsWithin(t *testing.T) {
	table := made(t)
	all := port(t, "", TCP, 80, "10.244.1.2:80", "a")
	for name, second := range map[string]Port{
		"twice":             all,
		"one of the same":   port(t, "192.0.2.1", TCP, 80, "10.244.1.3:80", "a"),
		"another family":    port(t, "", TCP, 80, "[fd00::2]:80", "b"),
		"another's":         port(t, "", TCP, 80, "10.244.1.2:80", "b"),
		"another place":     port(t, "", TCP, 80, "10.244.1.3:80", "a"),
		"another's one":     port(t, "192.0.2.1", TCP, 80, "10.244.1.3:80", "b"),
		"another's mapped ": port(t, "::ffff:192.0.2.1", TCP, 80, "10.244.1.3:80", "b"),
	} {
		err := table.AddPorts([]Port{all, second})
		if strings.HasPrefix(name, "another's") || name == "another place" {
			var other *PortTaken
			if !errors.As(err, &other) {
				t.Errorf("%s: %v", name, err)
			}
			same(t, listed(t, table), nil)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := table.RemovePorts([]Port{all, second, all}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	same(t, listed(t, table), nil)
}

func TestBadPorts(t *testing.T) {
	table := made(t)
	good := port(t, "", TCP, 80, "10.244.1.2:80", "a")
	for name, spoil := range map[string]func(p *Port){
		"no port":      func(p *Port) { p.Host = 0 },
		"no target":    func(p *Port) { p.Target = 0 },
		"no pod":       func(p *Port) { p.Pod = netip.Addr{} },
		"no pod's":     func(p *Port) { p.Pod = netip.IPv4Unspecified() },
		"protocol":     func(p *Port) { p.Protocol = 1 },
		"two families": func(p *Port) { p.HostIP = netip.MustParseAddr("2001:db8::1") },
		"zone":         func(p *Port) { p.HostIP, p.Pod = netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("fd00::1") },
		"no owner":     func(p *Port) { p.Owner = "" },
	} {
		bad := good
		spoil(&bad)
		if err := table.AddPorts([]Port{good, bad}); err == nil {
			t.Errorf("%s: added", name)
		}
	}
	same(t, listed(t, table), nil)
	if err := table.RemovePorts([]Port{{Protocol: 1, Host: 1, Owner: "a"}}); err == nil {
		t.Error("a bad port was removed")
	}
}

func TestAddAgain(t *testing.T) {
	table := made(t)
	ports := somePorts(t)
	add(t, table, ports[:2]...)
	add(t, table, ports...)
	add(t, table, ports...)
	same(t, listed(t, table), ports)
	moved := ports
	moved[0].Pod, moved[0].Target = netip.MustParseAddr("10.244.1.9"), 81
	add(t, table, append(moved, port(t, "", TCP, 9, "10.244.1.2:80", "shop/web"))...)
	same(t, listed(t, table), append(moved, port(t, "", TCP, 9, "10.244.1.2:80", "shop/web")))
}

func TestRemove(t *testing.T) {
	table := made(t)
	if err := table.RemovePorts(somePorts(t)); err != nil {
		t.Error(err)
	}
	ports := append(somePorts(t), port(t, "", UDP, 53, "10.244.1.2:53", "b"), port(t, "", UDP, 53, "[fd00::2]:53", "b"))
	add(t, table, ports[:4]...)
	if err := table.AddPorts(ports[4:]); err == nil {
		t.Error("port 53 was free")
	}
	ports[4].Host, ports[5].Host = 54, 54
	add(t, table, ports[4:]...)
	others := ports[4]
	others.Owner = "c"
	if err := table.RemovePorts([]Port{ports[0], others, {Protocol: TCP, Host: 1, Owner: "b"}}); err != nil {
		t.Error(err)
	}
	same(t, listed(t, table), ports[1:])
	if err := table.RemovePorts([]Port{{Protocol: UDP, Host: 54, Owner: "b"}}); err != nil {
		t.Error(err)
	}
	same(t, listed(t, table), ports[1:4])
	if err := table.RemovePorts(ports[2:4]); err != nil {
		t.Error(err)
	}
	same(t, listed(t, table), ports[1:2])
	if err := table.Delete(); err != nil {
		t.Fatal(err)
	}
	if err := table.RemovePorts(ports); err != nil {
		t.Errorf("without a table: %v", err)
	}
}

// TestManyPorts has more than one message holds, and survive a new table.
func TestManyPorts(t *testing.T) {
	table := made(t)
	var all []Port
	for i := range portsSize {
		all = append(all,
			port(t, "", TCP, uint16(1+i), fmt.Sprintf("10.244.1.%d:80", 1+i%250), strings.Repeat("x", 150)+fmt.Sprint(i)))
	}
	add(t, table, all...)
	for i := range all {
		all[i].Owner = KeptOwner(all[i].Owner)
	}
	same(t, listed(t, table), all)
	if err := table.Repair(both, nil); err != nil {
		t.Fatal(err)
	}
	same(t, listed(t, table), all)
	if err := table.AddPorts([]Port{port(t, "", TCP, 9999, "10.244.1.1:80", "a")}); !errors.Is(err, unix.ENFILE) {
		t.Errorf("more than fit: %v", err)
	}
	if err := table.RemovePorts(all); err != nil {
		t.Fatal(err)
	}
	same(t, listed(t, table), nil)
}

func TestOwners(t *testing.T) {
	table := made(t)
	hostile := []string{"a\"b", "a\nb", "a\x00b", "\xff\xfe", "日本", strings.Repeat("y", 200), strings.Repeat("y", 201), "back\\slash", "{ } ; # '"}
	var all []Port
	for i, owner := range hostile {
		all = append(all, port(t, "", TCP, uint16(100+i), "10.244.1.2:80", owner))
	}
	add(t, table, all...)
	add(t, table, all...)
	seen := map[string]bool{}
	for _, p := range listed(t, table) {
		if seen[p.Owner] || p.Owner != KeptOwner(p.Owner) {
			t.Errorf("owner %q", p.Owner)
		}
		seen[p.Owner] = true
	}
	if err := table.RemovePorts(all); err != nil {
		t.Error(err)
	}
	same(t, listed(t, table), nil)
}

// TestConcurrently has several sockets add and remove at once, all beside one
// that rewrites the rules, and one that makes the table anew.
func TestConcurrently(t *testing.T) {
	ns := nstest.New(t)
	ensure(t, open(t, ns), both, true)
	const adders, rounds = 8, 25
	won := make([]int, adders)
	var all sync.WaitGroup
	for i := range adders {
		table := open(t, ns)
		all.Go(func() {
			for round := range rounds {
				own := port(t, "", TCP, uint16(1000*(1+i)+round), "10.244.1.2:80", fmt.Sprint(i))
				kind := []string{"", "192.0.2.1"}[i%2]
				disputed := port(t, kind, TCP, uint16(100+round), fmt.Sprintf("10.244.1.%d:80", i+1), fmt.Sprint(i))
				if err := table.AddPorts([]Port{own}); err != nil {
					t.Error(err)
				}
				var other *PortTaken
				switch err := table.AddPorts([]Port{disputed}); {
				case err == nil:
					won[i]++
				case !errors.As(err, &other):
					t.Error(err)
				}
				if round%2 == 1 {
					if err := table.RemovePorts([]Port{own}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	mender := open(t, ns)
	all.Go(func() {
		for i := range 20 {
			b := both
			b.Masquerade = i%2 == 0
			if _, err := mender.Ensure(b, nil); err != nil {
				t.Error(err)
			}
			if err := mender.Repair(b, nil); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	sum := 0
	for _, n := range won {
		sum += n
	}
	ports := listed(t, open(t, ns))
	if want := adders*(rounds+1)/2 + rounds; sum != rounds || len(ports) != want {
		t.Errorf("%d disputed ports were won, of %d; %d ports, want %d", sum, rounds, len(ports), want)
	}
}

// BenchmarkAddPod adds and removes the two ports of a pod beside those of
// others.
func BenchmarkAddPod(b *testing.B) {
	for _, others := range []int{0, 200, 700} {
		b.Run(fmt.Sprintf("beside %d", others), func(b *testing.B) {
			table := made(b)
			var all []Port
			for i := range others {
				pod := fmt.Sprintf("10.244.%d.%d:80", 1+i/250, 1+i%250)
				all = append(all, port(b, "", TCP, uint16(10000+i), pod, fmt.Sprint(i)), port(b, "", UDP, uint16(10000+i), pod, fmt.Sprint(i)))
			}
			add(b, table, all...)
			own := []Port{port(b, "", TCP, 80, "10.244.1.2:80", "own"), port(b, "", TCP, 443, "10.244.1.2:443", "own")}
			b.ReportAllocs()
			for b.Loop() {
				add(b, table, own...)
				if err := table.RemovePorts(own); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
