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

// maxRoutes bounds the routes. A configuration of net/cni has the same limit for
// networks without masquerading.
const maxRoutes = 1024

// The prefix lengths of the largest pod networks. A larger network would contain a
// considerable part of the Internet's addresses.
const (
	widest4 = 8
	widest6 = 32
)

// host is the network state of this machine.
type host struct {
	// reach are the usable addresses of all links that may lead to nodes: not the
	// loopback and not the pods' bridge.
	reach []reach
	// taken are the networks of all addresses, those of the pods' bridge included, and of
	// others' routes without a gateway.
	taken []netip.Prefix
	// server are the addresses of the API server. If a route led them to another node,
	// this node could not receive the corrected Node object.
	server []netip.Addr
	// pods are the addresses of the pods' bridge.
	pods []netip.Addr
	// routes are all routes of the main table.
	routes []link.Route
}

// reach is an address of this machine. The nodes in its prefix are on its link.
type reach struct {
	link.Address
	running bool // the link has a carrier
}

// plannedRoutes are the desired routes.
type plannedRoutes struct {
	routes  []link.Route   // sorted by destination
	claimed []netip.Prefix // of all nodes, sorted by address; no two overlap
	// offLink is the number of nodes that are not on a link of this node.
	offLink int
	// faults are the reasons why networks were rejected.
	faults []string
}

// plan computes the routes to the pods of other nodes. Of overlapping networks,
// that of the oldest node wins, whether or not the node is on a link: a node can
// register with any network, but not before others.
func plan(h host, peers map[listwatch.Key]peer) plannedRoutes {
	var w plannedRoutes
	for _, name := range slices.SortedFunc(maps.Keys(peers), byAge(peers)) {
		near := false
		for _, network := range peers[name].networks {
			r, ok := h.route(network, peers[name].addresses)
			near = near || ok
			fault := w.reject(h, network)
			if fault == "" && len(w.routes) == maxRoutes {
				fault = fmt.Sprintf("the limit of %d routes is reached", maxRoutes)
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
			w.offLink++
		}
	}
	slices.SortFunc(w.routes, func(a, b link.Route) int { return a.Dst.Compare(b.Dst) })
	return w
}

func byName(a, b listwatch.Key) int { return cmp.Compare(a.Name, b.Name) }

func byAge(peers map[listwatch.Key]peer) func(a, b listwatch.Key) int {
	return func(a, b listwatch.Key) int { return cmp.Or(cmp.Compare(peers[a].since, peers[b].since), byName(a, b)) }
}

// route returns the route to a network of a node with these addresses. The gateway
// is the first address that is on a link.
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

// on returns the link of another node's address: the one with the longest prefix
// that contains the address, but a link with a carrier before one without.
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

// private are networks that are not routed in the Internet.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}

func isPrivate(network netip.Prefix) bool {
	return slices.ContainsFunc(private, func(p netip.Prefix) bool { return p.Bits() <= network.Bits() && p.Contains(network.Addr()) })
}

// public reports whether this node's own pods have public addresses of that family.
// Otherwise a node that claims a public network would get traffic for Internet
// hosts.
func (h host) public(v4 bool) bool {
	return slices.ContainsFunc(h.pods, func(a netip.Addr) bool {
		return a.Is4() == v4 && !isPrivate(netip.PrefixFrom(a, a.BitLen()))
	})
}

// none are networks that cannot be pod networks.
var none = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("::/32"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// wide reports whether a network is too large for a pod network.
func wide(network netip.Prefix) bool { return network.Bits() < widest(network) }

func widest(network netip.Prefix) int {
	if network.Addr().Is6() {
		return widest6
	}
	return widest4
}

// reject returns why there must be no route to a network. It returns "" if there may
// be one, and then no other node gets a part of the network.
func (w *plannedRoutes) reject(h host, network netip.Prefix) string {
	overlaps := func(p netip.Prefix) bool { return p.Overlaps(network) }
	switch {
	case wide(network):
		return fmt.Sprintf("it is larger than a /%d", widest(network))
	case slices.ContainsFunc(none, overlaps):
		return "it cannot be a pod network"
	case !isPrivate(network) && !h.public(network.Addr().Is4()):
		return "it is public, and this node's pod network is not"
	}
	if i := slices.IndexFunc(h.taken, overlaps); i >= 0 {
		return fmt.Sprintf("it overlaps %v of this node", h.taken[i])
	}
	if i := slices.IndexFunc(h.server, network.Contains); i >= 0 {
		return fmt.Sprintf("it contains %v, the API server's address", h.server[i])
	}
	leads := func(r link.Route) bool { return isForeign(r) && r.Gateway.IsValid() && network.Contains(r.Gateway) }
	if i := slices.IndexFunc(h.routes, leads); i >= 0 {
		return fmt.Sprintf("it contains %v, the address of this node's router", h.routes[i].Gateway)
	}
	i, _ := slices.BinarySearchFunc(w.claimed, network, netip.Prefix.Compare)
	for _, p := range w.claimed[max(i-1, 0):min(i+1, len(w.claimed))] {
		if overlaps(p) {
			return fmt.Sprintf("it overlaps %v of another node", p)
		}
	}
	w.claimed = slices.Insert(w.claimed, i, network)
	return ""
}
