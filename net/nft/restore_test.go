package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

func wanting(ports ...Port) func() ([]Port, error) {
	return func() ([]Port, error) { return ports, nil }
}

// TestRestore has ports put back with the rules, by who makes these.
func TestRestore(t *testing.T) {
	makes := map[string]func(*Table, func() ([]Port, error)) error{
		"Ensure": func(table *Table, ports func() ([]Port, error)) error {
			changed, err := table.Ensure(both, ports)
			if err == nil && !changed {
				err = errors.New("nothing was changed")
			}
			return err
		},
		"Repair": func(table *Table, ports func() ([]Port, error)) error { return table.Repair(both, ports) },
	}
	for _, edit := range []string{
		"delete table inet tinylet",
		"flush table inet tinylet",
		"flush table inet tinylet; flush map inet tinylet ports4; flush map inet tinylet ports6at",
		"flush table inet tinylet; delete map inet tinylet ports6; add map inet tinylet ports6 { type ipv4_addr : ipv4_addr; }",
		"flush chain inet tinylet guard; add rule inet tinylet guard accept comment \"rules 0-1234\"; flush map inet tinylet ports4at",
		"flush table inet tinylet; add table inet tinylet { flags dormant; }; flush map inet tinylet ports6",
	} {
		for name, write := range makes {
			t.Run(name+" after "+edit, func(t *testing.T) {
				ns := nstest.New(t)
				table := open(t, ns)
				ensure(t, table, both, true)
				add(t, table, somePorts(t)...)
				stays := port(t, "", TCP, 7, "10.244.1.7:7", "nobody")
				add(t, table, stays)
				run(t, ns, "nft", edit)
				left := slices.Contains(listed(t, table), stays)
				if err := write(table, wanting(somePorts(t)...)); err != nil {
					t.Fatal(err)
				}
				if err := table.Verify(both); err != nil {
					t.Error(err)
				}
				want := somePorts(t)
				if left {
					want = append(want, stays)
				}
				same(t, listed(t, table), want)
				if changed, err := table.Ensure(both, func() ([]Port, error) { return nil, errors.New("it was asked") }); changed || err != nil {
					t.Errorf("once more: changed %v, %v", changed, err)
				}
			})
		}
	}
}

// TestRestoreLeftOut is what cannot be put back, and keeps nothing else away.
func TestRestoreLeftOut(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	there := port(t, "", TCP, 80, "10.244.1.2:80", "a")
	add(t, table, there)
	run(t, ns, "nft", "flush table inet tinylet")
	good := []Port{
		port(t, "192.0.2.1", TCP, 80, "10.244.1.2:8080", "a"),
		port(t, "", TCP, 81, "10.244.1.3:80", "b"),
		port(t, "", TCP, 80, "[fd00::3]:80", "b"),
		port(t, "192.0.2.1", TCP, 82, "10.244.1.3:80", strings.Repeat("b", 200)),
	}
	want := slices.Concat(good, []Port{
		port(t, "", TCP, 80, "10.244.1.3:80", "b"),
		port(t, "192.0.2.2", TCP, 80, "10.244.1.3:80", "b"),
		port(t, "", TCP, 81, "10.244.1.4:80", "c"),
		port(t, "", TCP, 82, "10.244.1.4:80", "c"),
		{}, {Protocol: TCP, Host: 83, Owner: "d"}, {Protocol: 1, Host: 84, Target: 1, Pod: there.Pod, Owner: "d"},
	}, good)
	if changed, err := table.Ensure(both, wanting(want...)); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	good[3].Owner = KeptOwner(good[3].Owner)
	same(t, listed(t, table), append(good, there))
}

// TestRestoreMany puts back all that there is room for, which is far more than
// one message holds.
func TestRestoreMany(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	var all, more []Port
	for _, kind := range []struct {
		host, pod string
		size      int
	}{{"", "10.244.1.2:80", portsSize}, {"", "[fd00::2]:80", portsSize}, {"192.0.2.1", "10.244.1.2:80", portsAtSize}, {"2001:db8::1", "[fd00::2]:80", portsAtSize}} {
		for i := range kind.size + 1 {
			number := uint16(1 + i)
			if kind.host != "" {
				number += 10000
			}
			p := port(t, kind.host, TCP, number, kind.pod, fmt.Sprint(i, strings.Repeat("x", ownerLen-5)))
			if more = append(more, p); i < kind.size {
				all = append(all, p)
			}
		}
	}
	if changed, err := table.Ensure(both, wanting(more...)); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	same(t, listed(t, table), all)
	run(t, ns, "nft", "flush table inet tinylet; flush map inet tinylet ports4")
	if changed, err := table.Ensure(both, wanting(more...)); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	same(t, listed(t, table), all)
}

// TestRestoreUnknown is who does not know what ports there are to be: nobody may
// think then that all are there.
func TestRestoreUnknown(t *testing.T) {
	table := open(t, nstest.New(t))
	unknown := errors.New("unknown")
	if changed, err := table.Ensure(both, func() ([]Port, error) { return nil, unknown }); changed || !errors.Is(err, unknown) {
		t.Errorf("changed %v, %v", changed, err)
	}
	if err := table.Repair(both, func() ([]Port, error) { return nil, unknown }); !errors.Is(err, unknown) {
		t.Error(err)
	}
	if err := table.Verify(both); !errors.Is(err, ErrNoTable) {
		t.Errorf("it was made: %v", err)
	}
}

// TestRestoreBeside has others be ahead while it is asked for ports.
func TestRestoreBeside(t *testing.T) {
	ns := nstest.New(t)
	table, other := open(t, ns), open(t, ns)
	mine, theirs := port(t, "", TCP, 80, "10.244.1.2:80", "a"), port(t, "192.0.2.1", TCP, 80, "10.244.1.3:80", "b")
	for _, row := range []struct {
		name    string
		ahead   func()
		changed bool
		want    []Port
	}{
		{"who makes it", func() { ensure(t, other, both, true) }, false, nil},
		{"who makes another", func() { ensure(t, other, Base{Bridge: "pods1", Pods: both.Pods}, true) }, true, []Port{mine}},
		{"who makes it with a port and flushes it", func() {
			ensure(t, other, both, true)
			add(t, other, theirs)
			run(t, ns, "nft", "flush table inet tinylet")
		}, true, []Port{theirs}},
		{"who makes it and deletes it", func() {
			ensure(t, other, both, true)
			if err := other.Delete(); err != nil {
				t.Fatal(err)
			}
		}, true, []Port{mine}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := table.Delete(); err != nil {
				t.Fatal(err)
			}
			asked := 0
			changed, err := table.Ensure(both, func() ([]Port, error) {
				if asked++; asked == 1 {
					row.ahead()
				}
				return []Port{mine}, nil
			})
			if changed != row.changed || err != nil {
				t.Errorf("changed %v, %v", changed, err)
			}
			same(t, listed(t, table), row.want)
			if err := table.Verify(both); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRestoreStale has a socket send on while the table is gone.
func TestRestoreStale(t *testing.T) {
	n, table := reach(t, both)
	n.serve(n.host, ":8080", "host")
	p := port(t, "", UDP, 8080, "10.244.1.2:80", "a")
	for name, write := range map[string]func() error{
		"Ensure": func() error { _, err := table.Ensure(both, wanting(p)); return err },
		"Repair": func() error { return table.Repair(both, wanting(p)) },
	} {
		if err := table.Delete(); err != nil {
			t.Fatal(err)
		}
		socket := n.dial(n.outside, "udp", "192.0.2.1:8080")
		if got := n.hear(socket, patience); !strings.HasPrefix(got, "host") {
			t.Errorf("%s: heard %q without a table", name, got)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if got := n.hear(socket, patience); !strings.HasPrefix(got, "a ") {
			t.Errorf("%s: heard %q", name, got)
		}
	}
}

// BenchmarkRestore makes the table with the ports of 200 pods.
func BenchmarkRestore(b *testing.B) {
	table := open(b, nstest.New(b))
	var all []Port
	for i := range 200 {
		pod := fmt.Sprintf("10.244.1.%d:80", 1+i)
		all = append(all, port(b, "", TCP, uint16(10000+i), pod, fmt.Sprint(i)), port(b, "", UDP, uint16(10000+i), pod, fmt.Sprint(i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := table.Delete(); err != nil {
			b.Fatal(err)
		}
		if _, err := table.Ensure(both, wanting(all...)); err != nil {
			b.Fatal(err)
		}
	}
}
