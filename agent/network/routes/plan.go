package routes

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/net/link"
)

// maxRoutes bounds the routes: a configuration of net/cni names as many
// networks without masquerade.
const maxRoutes = 1024

// A network of pods is no larger than these, in bits of its prefix: what takes
// a good part of the world is none.
const (
	widest4 = 8
	widest6 = 32
)

// host is what counts of this machine.
type host struct {
	// reach are the addresses of links to the world.
	reach []reach
	// taken are the networks of all links, the pods' bridge included.
	taken []netip.Prefix
	// server is where the API server is: led elsewhere, nothing would tell this
	// node of the mistake's end.
	server []netip.Addr
	// pods are the addresses of the pods' bridge.
	pods []netip.Addr
	// routes are all of the main table.
	routes []link.Route
}

// reach is a way to the nodes that are in the address's prefix.
type reach struct {
	link.Address
	running bool // the link has a carrier
}

// wanted is what is to be.
type wanted struct {
	routes  []link.Route   // by destination
	claimed []netip.Prefix // by address; none lies in another
	// beyond counts nodes that are on no link of this one.
	beyond int
	// faults are why networks are left out that make no sense.
	faults []string
}

// plan works out the routes to the pods of other nodes. Of networks that
// overlap, the oldest node has it, wherever it is: nodes can make themselves with
// any, but not before others.
func plan(h host, peers map[listwatch.Key]peer) wanted {
	var w wanted
	for _, name := range slices.SortedFunc(maps.Keys(peers), byAge(peers)) {
		near := false
		for _, network := range peers[name].networks {
			r, ok := h.route(network, peers[name].addresses)
			near = near || ok
			fault := w.claim(h, network)
			if fault == "" && len(w.routes) == maxRoutes {
				fault = fmt.Sprintf("there are %d routes already", maxRoutes)
			}
			switch {
			case !ok:
			case fault == "":
				w.routes = append(w.routes, r)
			default:
				w.faults = append(w.faults, fmt.Sprintf("podCIDR %v of node %.63q: %s", network, name.Name, fault))
			}
		}
		if !near {
			w.beyond++
		}
	}
	slices.SortFunc(w.routes, func(a, b link.Route) int { return compare(a.Dst, b.Dst) })
	return w
}

func byName(a, b listwatch.Key) int { return cmp.Compare(a.Name, b.Name) }

func byAge(peers map[listwatch.Key]peer) func(a, b listwatch.Key) int {
	return func(a, b listwatch.Key) int { return cmp.Or(cmp.Compare(peers[a].since, peers[b].since), byName(a, b)) }
}

func compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// route is the way to a network of a node with these addresses: by the first
// that is on a link.
func (h host) route(network netip.Prefix, addresses []netip.Addr) (link.Route, bool) {
	for _, a := range addresses {
		if a.Is4() != network.Addr().Is4() {
			continue
		}
		if on, ok := h.on(a); ok {
			return link.Route{Dst: network, Gateway: a, Link: on, Protocol: Protocol}, true
		}
	}
	return link.Route{}, false
}

// on is the link that an address of another node is on: that of the smallest
// network which has it, but one that can carry packets before one that cannot.
func (h host) on(a netip.Addr) (index int, ok bool) {
	var best reach
	for _, own := range h.reach {
		switch {
		case own.Prefix.Addr() == a:
			return 0, false // it is this machine
		case own.Prefix.Contains(a) && (!ok || own.before(best)):
			best, ok = own, true
		}
	}
	return best.Index, ok
}

func (r reach) before(other reach) bool {
	if r.running != other.running {
		return r.running
	}
	return r.Prefix.Bits() > other.Prefix.Bits()
}

// private are networks that nobody has in the world.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}

func isPrivate(network netip.Prefix) bool {
	return slices.ContainsFunc(private, func(p netip.Prefix) bool { return p.Bits() <= network.Bits() && p.Contains(network.Addr()) })
}

// public says that this node's own pods have public addresses of that family:
// else a node that says so of its own is to get what is for others.
func (h host) public(v4 bool) bool {
	return slices.ContainsFunc(h.pods, func(a netip.Addr) bool {
		return a.Is4() == v4 && !isPrivate(netip.PrefixFrom(a, a.BitLen()))
	})
}

// none are networks that no pods are in.
var none = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("::/32"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// wide says that a network is larger than one of pods.
func wide(network netip.Prefix) bool { return network.Bits() < widest(network) }

func widest(network netip.Prefix) int {
	if network.Addr().Is6() {
		return widest6
	}
	return widest4
}

// claim says why there must be no route to a network, "" if there may be one:
// then no other node has a part of it.
func (w *wanted) claim(h host, network netip.Prefix) string {
	overlaps := func(p netip.Prefix) bool { return p.Overlaps(network) }
	switch {
	case wide(network):
		return fmt.Sprintf("it is larger than a /%d", widest(network))
	case slices.ContainsFunc(none, overlaps):
		return "it is of no pods"
	case !isPrivate(network) && !h.public(network.Addr().Is4()):
		return "it is public, and this node's own is not"
	}
	if i := slices.IndexFunc(h.taken, overlaps); i >= 0 {
		return fmt.Sprintf("this node has %v itself", h.taken[i])
	}
	if i := slices.IndexFunc(h.server, network.Contains); i >= 0 {
		return fmt.Sprintf("the API server is at %v", h.server[i])
	}
	leads := func(r link.Route) bool { return foreign(r) && r.Gateway.IsValid() && network.Contains(r.Gateway) }
	if i := slices.IndexFunc(h.routes, leads); i >= 0 {
		return fmt.Sprintf("this node's router is at %v", h.routes[i].Gateway)
	}
	i, _ := slices.BinarySearchFunc(w.claimed, network, compare)
	for _, p := range w.claimed[max(i-1, 0):min(i+1, len(w.claimed))] {
		if overlaps(p) {
			return fmt.Sprintf("another node has %v", p)
		}
	}
	w.claimed = slices.Insert(w.claimed, i, network)
	return ""
}
