package routes

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/net/link"
)

// cornered returns a host whose API server and router have addresses in possible
// pod networks.
func cornered() host {
	h := board()
	h.server = []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")}
	h.routes = []link.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.8.0.1"), Link: 2}}
	return h
}

// TestCornered: Nodes claim networks that this node needs.
func TestCornered(t *testing.T) {
	for cidr, want := range map[string]string{
		"10.9.0.0/24":    "it contains 10.9.0.1, the API server's address",
		"10.9.0.1/32":    "it contains 10.9.0.1, the API server's address",
		"fd09::/64":      "it contains fd09::1, the API server's address",
		"10.8.0.0/16":    "it contains 10.8.0.1, the address of this node's router",
		"192.168.0.1/32": "it overlaps 192.168.0.0/24 of this node",
		"127.0.0.0/8":    "it cannot be a pod network",
		"169.254.1.0/24": "it cannot be a pod network",
	} {
		peers := map[listwatch.Key]peer{}
		peers[listwatch.Key{Name: "a"}], _ = kept(node("a", []string{cidr}, "192.168.0.8", "fd00::8"))
		w := plan(cornered(), peers)
		if len(w.routes) != 0 || len(w.faults) != 1 || w.faults[0] != fmt.Sprintf("podCIDR %s of node \"a\": %s", cidr, want) {
			t.Errorf("%s: %v, faults %q", cidr, w.routes, w.faults)
		}
	}
	// A node that is where the API server is has pods as any other.
	peers := map[listwatch.Key]peer{}
	h := cornered()
	h.server = append(h.server, netip.MustParseAddr("192.168.0.8"))
	peers[listwatch.Key{Name: "a"}], _ = kept(node("a", []string{"10.244.1.0/24"}, "192.168.0.8"))
	if w := plan(h, peers); len(w.routes) != 1 || len(w.faults) != 0 {
		t.Errorf("%v, faults %q", w.routes, w.faults)
	}
}

// FuzzNodes lets the server send arbitrary Nodes, as a JSON list.
func FuzzNodes(f *testing.F) {
	for _, nodes := range [][]*v1.Node{
		{node("a", []string{"10.244.1.0/24", "fd00:244:1::/64"}, "192.168.0.8", "fd00::8"), aged(1, node("b", []string{"10.244.1.0/25"}, "172.16.1.9"))},
		{node("a", []string{"10.9.0.0/16", "10.8.0.0/16", "0.0.0.0/0", "::ffff:10.0.0.0/104"}, "192.168.0.3", "fe80::1%eth0", "192.168.0.8")},
		{node("", []string{"127.0.0.0/8", "fe80::/64", "x"}, "::ffff:192.168.0.8")},
	} {
		data, err := json.Marshal(nodes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var nodes []v1.Node
		_ = json.Unmarshal(data, &nodes) // what could be read is there
		peers := map[listwatch.Key]peer{}
		for i := range nodes {
			if p, ok := kept(&nodes[i]); ok {
				peers[listwatch.Key{Name: nodes[i].Name}] = p
			}
		}
		h := cornered()
		w := plan(h, peers)
		if len(w.routes) > maxRoutes {
			t.Errorf("%d routes", len(w.routes))
		}
		for i, r := range w.routes {
			bad := func(a netip.Addr) bool { return r.Dst.Contains(a) }
			switch {
			case !r.Dst.IsValid() || r.Dst != r.Dst.Masked() || r.Dst.Bits() < widest(r.Dst) || !r.Gateway.IsValid() || r.Gateway.Is4() != r.Dst.Addr().Is4():
				t.Errorf("no route: %+v", r)
			case slices.ContainsFunc(h.server, bad) || bad(h.routes[0].Gateway) || slices.ContainsFunc(h.taken, r.Dst.Overlaps) || slices.ContainsFunc(none, r.Dst.Overlaps):
				t.Errorf("it leads away what this node needs: %+v", r)
			}
			for _, other := range w.routes[:i] {
				if other.Dst.Overlaps(r.Dst) {
					t.Errorf("%v and %v overlap", other.Dst, r.Dst)
				}
			}
		}
	})
}
