package nft

import "testing"

// reach makes a network with the table, a server in each pod and outside.
func reach(t testing.TB, b Base) (*network, *Table) {
	n := connect(t)
	table := open(t, n.host)
	if _, err := table.Ensure(b, nil); err != nil {
		t.Fatal(err)
	}
	n.serve(n.a, ":80", "a")
	n.serve(n.b, ":80", "b")
	n.serve(n.outside, ":80", "outside")
	return n, table
}

func add(t testing.TB, table *Table, ports ...Port) {
	t.Helper()
	if err := table.AddPorts(ports); err != nil {
		t.Fatal(err)
	}
}

func TestMasquerade(t *testing.T) {
	n, table := reach(t, both)
	n.answers(n.a, "192.0.2.2:80", "outside 192.0.2.1")
	n.answers(n.a, "[2001:db8::2]:80", "outside 2001:db8::1")
	n.answers(n.a, "10.244.1.3:80", "b 10.244.1.2")
	n.answers(n.a, "[fd00:244:1::3]:80", "b fd00:244:1::2")

	// What is reached directly sees the pods' own addresses.
	n.ip(n.outside, "route add 10.244.1.0/24 via 192.0.2.1", "route add fd00:244:1::/64 via 2001:db8::1")
	direct := both
	direct.Direct = prefixes("192.0.2.0/25", "2001:db8::/64")
	if changed, err := table.Ensure(direct, nil); err != nil || !changed {
		t.Fatal(changed, err)
	}
	n.answers(n.a, "192.0.2.2:80", "outside 10.244.1.2")
	n.answers(n.a, "[2001:db8::2]:80", "outside fd00:244:1::2")
	none := both
	none.Masquerade = false
	if changed, err := table.Ensure(none, nil); err != nil || !changed {
		t.Fatal(changed, err)
	}
	n.answers(n.b, "192.0.2.2:80", "outside 10.244.1.3")
}

func TestHostPorts(t *testing.T) {
	n, table := reach(t, both)
	add(t, table,
		port(t, "", TCP, 8080, "10.244.1.2:80", "a"), port(t, "", UDP, 8080, "10.244.1.2:80", "a"),
		port(t, "", TCP, 8080, "[fd00:244:1::2]:80", "a"), port(t, "", UDP, 8080, "[fd00:244:1::2]:80", "a"),
		port(t, "192.0.2.9", TCP, 8081, "10.244.1.3:80", "b"), port(t, "192.0.2.9", UDP, 8081, "10.244.1.3:80", "b"),
		port(t, "127.0.0.1", TCP, 8082, "10.244.1.3:80", "b"), port(t, "127.0.0.1", UDP, 8082, "10.244.1.3:80", "b"))
	t.Run("from outside", func(t *testing.T) {
		n := *n
		n.TB = t
		n.answers(n.outside, "192.0.2.1:8080", "a 192.0.2.2")
		n.answers(n.outside, "192.0.2.9:8080", "a 192.0.2.2")
		n.answers(n.outside, "[2001:db8::1]:8080", "a 2001:db8::2")
	})
	t.Run("on one address", func(t *testing.T) {
		n := *n
		n.TB = t
		n.answers(n.outside, "192.0.2.9:8081", "b 192.0.2.2")
		n.answers(n.outside, "192.0.2.1:8081", "")
		n.answers(n.host, "127.0.0.1:8082", "b 10.244.1.1")
		n.answers(n.outside, "192.0.2.1:8082", "")
	})
	t.Run("from the machine", func(t *testing.T) {
		n := *n
		n.TB = t
		n.answers(n.host, "127.0.0.1:8080", "a 10.244.1.1")
		n.answers(n.host, "192.0.2.1:8080", "a 192.0.2.1")
		n.answers(n.host, "[2001:db8::1]:8080", "a 2001:db8::1")
		n.answers(n.host, "[::1]:8080", "")
	})
	t.Run("from pods", func(t *testing.T) {
		n := *n
		n.TB = t
		n.answers(n.a, "192.0.2.1:8080", "a 10.244.1.1")
		n.answers(n.a, "10.244.1.1:8080", "a 10.244.1.1")
		n.answers(n.b, "192.0.2.1:8080", "a 10.244.1.1")
		n.answers(n.b, "[2001:db8::1]:8080", "a fd00:244:1::1")
		n.answers(n.a, "[2001:db8::1]:8080", "a fd00:244:1::1")
	})
	if err := table.RemovePorts([]Port{{Protocol: TCP, Host: 8080, Owner: "a"}, {Protocol: UDP, Host: 8080, Owner: "a"}}); err != nil {
		t.Fatal(err)
	}
	n.answers(n.outside, "192.0.2.1:8080", "")
	n.answers(n.outside, "[2001:db8::1]:8080", "")
	n.answers(n.outside, "192.0.2.9:8081", "b 192.0.2.2")
}

// TestGuard shows that nobody else reaches what listens on localhost, although
// the bridge routes it.
func TestGuard(t *testing.T) {
	n, table := reach(t, both)
	n.serve(n.host, "127.0.0.1:7000", "secret")
	n.answers(n.host, "127.0.0.1:7000", "secret 127.0.0.1")
	n.sysctl(n.a, "ipv4/conf/all/route_localnet", "1")
	n.ip(n.a, "addr del 127.0.0.1/8 dev lo", "route add 127.0.0.0/8 via 10.244.1.1 src 10.244.1.2")
	n.ip(n.a, "rule add pref 1 to 127.0.0.0/8 lookup main", "route flush table local dev lo")
	n.answers(n.a, "127.0.0.1:7000", "")
	if err := table.Delete(); err != nil {
		t.Fatal(err)
	}
	n.answers(n.a, "127.0.0.1:7000", "secret 10.244.1.2")
}
