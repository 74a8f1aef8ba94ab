package routes

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/net/link"
)

func node(name string, cidrs []string, ips ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDRs: cidrs}}
	for _, ip := range ips {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return n
}

func TestKeep(t *testing.T) {
	many := slices.Repeat([]string{"10.1.0.0/24"}, 99)
	for _, row := range []struct {
		name string
		node *v1.Node
		want string
	}{
		{"one", node("n", []string{"10.1.0.0/24"}, "192.168.0.2"), "[10.1.0.0/24] [192.168.0.2] true"},
		{"both", node("n", []string{"10.1.0.0/24", "fd00:1::/64"}, "192.168.0.2", "fd00::2"), "[10.1.0.0/24 fd00:1::/64] [192.168.0.2 fd00::2] true"},
		{"unmasked", node("n", []string{"10.1.0.9/24"}, "::ffff:192.168.0.2"), "[10.1.0.0/24] [192.168.0.2] true"},
		{"no network", node("n", nil, "192.168.0.2"), "[] [192.168.0.2] false"},
		{"no address", node("n", []string{"10.1.0.0/24"}), "[10.1.0.0/24] [] false"},
		{"nonsense", node("n", []string{"x", "::ffff:10.0.0.0/104", "10.1.0.0/24"}, "y", "fe80::1%eth0", "192.168.0.2"), "[10.1.0.0/24] [192.168.0.2] true"},
		{"old field", &v1.Node{Spec: v1.NodeSpec{PodCIDR: "10.1.0.0/24"}}, "[10.1.0.0/24] [] false"},
		{"other addresses", &v1.Node{Spec: v1.NodeSpec{PodCIDR: "10.1.0.0/24"}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: "n"}, {Type: v1.NodeExternalIP, Address: "198.51.100.1"},
		}}}, "[10.1.0.0/24] [] false"},
	} {
		p, ok := kept(row.node)
		if got := fmt.Sprint(p.networks, p.addresses, ok); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	if p, _ := kept(node("n", many, slices.Repeat([]string{"192.168.0.2"}, 99)...)); len(p.networks) != maxOf || len(p.addresses) != maxOf {
		t.Errorf("%d networks, %d addresses are kept", len(p.networks), len(p.addresses))
	}
	if _, ok := kept(&v1.Pod{}); ok {
		t.Error("a pod is kept")
	}
}

// board returns a host with an address on eth0 (2), and one in the same network on
// wlan0 (3), which has no carrier. 4 is the pods' bridge.
func board() host {
	on := func(index int, prefix string, running bool) reach {
		return reach{link.Address{Index: index, Prefix: netip.MustParsePrefix(prefix)}, running}
	}
	h := host{reach: []reach{
		on(3, "192.168.0.3/24", false), on(2, "192.168.0.1/24", true), on(7, "192.168.0.4/24", false), on(2, "fd00::1/64", true), on(5, "172.16.0.1/12", true), on(6, "172.16.1.1/24", true),
	}}
	for _, r := range h.reach {
		h.taken = append(h.taken, r.Prefix.Masked())
	}
	h.taken = append(h.taken, netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64"))
	return h
}

func TestPlan(t *testing.T) {
	for _, row := range []struct {
		name   string
		nodes  []*v1.Node
		want   string
		beyond int
		fault  string
	}{
		{"none", nil, "", 0, ""},
		{"on the link", []*v1.Node{node("b", []string{"10.244.2.0/24"}, "192.168.0.9"), node("a", []string{"10.244.1.0/24"}, "192.168.0.8")},
			"10.244.1.0/24 via 192.168.0.8 dev 2, 10.244.2.0/24 via 192.168.0.9 dev 2", 0, ""},
		{"both families", []*v1.Node{node("a", []string{"10.244.1.0/24", "fd00:244:1::/64"}, "192.168.0.8", "fd00::8")},
			"10.244.1.0/24 via 192.168.0.8 dev 2, fd00:244:1::/64 via fd00::8 dev 2", 0, ""},
		{"one family is near", []*v1.Node{node("a", []string{"10.244.1.0/24", "fd00:244:1::/64"}, "192.168.0.8", "fd01::8")},
			"10.244.1.0/24 via 192.168.0.8 dev 2", 0, ""},
		{"another address is near", []*v1.Node{node("a", []string{"10.244.1.0/24"}, "203.0.113.1", "192.168.0.8")}, "10.244.1.0/24 via 192.168.0.8 dev 2", 0, ""},
		{"beyond", []*v1.Node{node("a", []string{"10.244.1.0/24"}, "203.0.113.1")}, "", 1, ""},
		{"smallest network", []*v1.Node{node("a", []string{"10.244.1.0/24"}, "172.16.1.9"), node("b", []string{"10.244.2.0/24"}, "172.17.1.9")},
			"10.244.1.0/24 via 172.16.1.9 dev 6, 10.244.2.0/24 via 172.17.1.9 dev 5", 0, ""},
		{"this node's address", []*v1.Node{node("a", []string{"10.244.1.0/24"}, "192.168.0.3")}, "", 1, ""},
		{"this node's pods", []*v1.Node{node("a", []string{"10.244.0.128/25"}, "192.168.0.8")}, "", 0, "of this node"},
		{"around this node's pods", []*v1.Node{node("a", []string{"10.244.0.0/16"}, "192.168.0.8")}, "", 0, "of this node"},
		{"the link itself", []*v1.Node{node("a", []string{"192.168.0.254/32"}, "192.168.0.8")}, "", 0, "of this node"},
		{"the world", []*v1.Node{node("a", []string{"0.0.0.0/0", "::/0"}, "192.168.0.8", "fd00::8")}, "", 0, "larger"},
		{"half the world", []*v1.Node{node("a", []string{"128.0.0.0/1"}, "192.168.0.8")}, "", 0, "larger"},
		{"around link-local addresses", []*v1.Node{node("a", []string{"169.0.0.0/8", "169.254.0.0/15"}, "192.168.0.8")}, "", 0, "cannot be a pod network"},
		{"no machine", []*v1.Node{node("a", []string{"0.1.0.0/16", "::/96", "64:ff9b::/96"}, "192.168.0.8", "fd00::8")}, "", 0, "cannot be a pod network"},
		{"public", []*v1.Node{node("a", []string{"203.0.113.0/24", "2001:db8::/64", "192.168.0.0/15"}, "192.168.0.8", "fd00::8")}, "", 0, "public"},
		{"no pods", []*v1.Node{node("a", []string{"127.0.0.0/8", "224.0.0.0/8", "fe80::/64"}, "192.168.0.8", "fd00::8")}, "", 0, "cannot be a pod network"},
		{"two have it", []*v1.Node{node("b", []string{"10.244.1.0/25"}, "192.168.0.9"), node("a", []string{"10.244.1.0/24"}, "192.168.0.8")},
			"10.244.1.0/24 via 192.168.0.8 dev 2", 0, "of another node"},
		{"the older one has it", []*v1.Node{aged(2, node("a", []string{"10.244.1.0/24"}, "192.168.0.8")), aged(1, node("b", []string{"10.244.1.0/24"}, "192.168.0.9"))},
			"10.244.1.0/24 via 192.168.0.9 dev 2", 0, "of node \"a\": it overlaps 10.244.1.0/24 of another node"},
		{"an older one beyond has it", []*v1.Node{aged(2, node("a", []string{"10.244.0.0/15", "10.245.0.0/16", "10.245.7.0/25"}, "192.168.0.8")), aged(1, node("b", []string{"10.245.7.0/24"}, "203.0.113.1"))},
			"", 1, "it overlaps 10.245.7.0/24 of another node"},
	} {
		t.Run(row.name, func(t *testing.T) {
			peers := map[listwatch.Key]peer{}
			for _, n := range row.nodes {
				peers[listwatch.Key{Name: n.Name}], _ = kept(n)
			}
			w := plan(board(), peers)
			var got []string
			for _, r := range w.routes {
				got = append(got, fmt.Sprintf("%v via %v dev %d", r.Dst, r.Gateway, r.Link))
				if r.Protocol != Protocol {
					t.Errorf("%v has protocol %d", r, r.Protocol)
				}
			}
			if text := strings.Join(got, ", "); text != row.want || w.offLink != row.beyond {
				t.Errorf("%q, %d beyond; want %q, %d", text, w.offLink, row.want, row.beyond)
			}
			if faults := strings.Join(w.faults, "; "); (row.fault == "") != (faults == "") || !strings.Contains(faults, row.fault) {
				t.Errorf("faults %q, want %q", faults, row.fault)
			}
		})
	}
}

func aged(seconds int64, n *v1.Node) *v1.Node {
	n.CreationTimestamp = metav1.Unix(seconds, 0)
	return n
}

// TestPublic: the cluster's pods have public addresses.
func TestPublic(t *testing.T) {
	h := board()
	h.pods = []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("fd00:244::1")}
	peers := map[listwatch.Key]peer{}
	peers[listwatch.Key{Name: "a"}], _ = kept(node("a", []string{"198.51.101.0/24", "2001:db8::/64"}, "192.168.0.8", "fd00::8"))
	w := plan(h, peers)
	if len(w.routes) != 1 || w.routes[0].Dst != netip.MustParsePrefix("198.51.101.0/24") || len(w.faults) != 1 {
		t.Errorf("%v, faults %q", w.routes, w.faults)
	}
}

// TestClaimed compares the result with a check of each pair.
func TestClaimed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var w plannedRoutes
		var all []netip.Prefix
		for range 40 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(8)), byte(r.IntN(256))}), 14+r.IntN(19)).Masked()
			free := !slices.ContainsFunc(all, p.Overlaps)
			if fault := w.reject(host{}, p); (fault == "") != free {
				t.Fatalf("%v beside %v: %q", p, all, fault)
			}
			if free {
				all = append(all, p)
			}
		}
	}
}

func crowd(n int) map[listwatch.Key]peer {
	peers := map[listwatch.Key]peer{}
	for i := range n {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		peers[listwatch.Key{Name: fmt.Sprint(i)}] = peer{[]netip.Prefix{network}, []netip.Addr{netip.AddrFrom4([4]byte{172, 18, byte(i >> 8), byte(i)})}, 0}
	}
	return peers
}

func TestPlanIsBounded(t *testing.T) {
	w := plan(board(), crowd(2*maxRoutes))
	if len(w.routes) != maxRoutes || len(w.faults) < maxRoutes-2 {
		t.Errorf("%d routes, %d faults", len(w.routes), len(w.faults))
	}
}

func BenchmarkPlan(b *testing.B) {
	h, peers := board(), crowd(100)
	b.ReportAllocs()
	for b.Loop() {
		plan(h, peers)
	}
}
