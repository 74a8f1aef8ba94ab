package routes

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/agent/follow"
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
}

// reach is a way to the nodes that are in the address's prefix.
type reach struct {
	link.Address
	running bool // the link has a carrier
}

// wanted is what is to be.
type wanted struct {
	routes []link.Route // by destination
	// beyond counts nodes that are on no link of this one.
	beyond int
	// faults are why networks are left out that make no sense.
	faults []string
}

// plan works out the routes to the pods of other nodes. Of networks that
// overlap, the first by the node's name has it.
func plan(h host, peers map[follow.Key]peer) wanted {
	var w wanted
	for _, name := range slices.SortedFunc(maps.Keys(peers), byName) {
		near := false
		for _, network := range peers[name].networks {
			r, ok := h.route(network, peers[name].addresses)
			if !ok {
				continue
			}
			near = true
			if fault := w.fault(h, network); fault != "" {
				w.faults = append(w.faults, fmt.Sprintf("podCIDR %v of node %.63q: %s", network, name.Name, fault))
				continue
			}
			w.routes = append(w.routes, r)
		}
		if !near {
			w.beyond++
		}
	}
	slices.SortFunc(w.routes, func(a, b link.Route) int { return compare(a.Dst, b.Dst) })
	return w
}

func byName(a, b follow.Key) int { return cmp.Compare(a.Name, b.Name) }

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

// fault says why there must be no route to a network, "" if there may be one.
func (w *wanted) fault(h host, network netip.Prefix) string {
	widest := widest4
	if network.Addr().Is6() {
		widest = widest6
	}
	a := network.Addr()
	switch {
	case network.Bits() < widest:
		return fmt.Sprintf("it is larger than a /%d", widest)
	case a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified():
		return "it is of no pods"
	case len(w.routes) == maxRoutes:
		return fmt.Sprintf("there are %d routes already", maxRoutes)
	}
	for _, t := range h.taken {
		if t.Overlaps(network) {
			return fmt.Sprintf("this node has %v itself", t)
		}
	}
	for _, r := range w.routes {
		if r.Dst.Overlaps(network) {
			return fmt.Sprintf("another node has %v", r.Dst)
		}
	}
	return ""
}
