package link

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is one path to a destination, in the main table. A multipath route is read as
// several Routes.
type Route struct {
	Dst     netip.Prefix // 0.0.0.0/0 and ::/0 are the default routes
	Gateway netip.Addr   // the zero value: the destination is on the link
	Link    int          // the index; 0 where the gateway determines it
	Source  netip.Addr   // preferred source address; may be the zero value
	Metric  uint32       // the lowest wins; 0 is the kernel's default, 1024 for IPv6
	// Protocol is the origin of the route, unix.RTPROT_*; 0 is RTPROT_BOOT, as for ip.
	Protocol uint8
	Type     uint8 // unix.RTN_*; 0 is RTN_UNICAST
	OnLink   bool  // the gateway is on the link, although no address's prefix contains it
	// Dead means that the link is down or has no carrier. It is ignored on writing.
	Dead bool
}

// Default reports whether it is a default route.
func (r Route) Default() bool { return r.Dst.IsValid() && r.Dst.Bits() == 0 }

// check returns why there cannot be such a route. The library has signed metrics, of 32
// bits on some machines.
func (r Route) check() error {
	switch {
	case !r.Dst.IsValid() || r.Dst.Addr().Is4In6() || r.Dst != r.Dst.Masked():
		return fmt.Errorf("%s is not a destination", r.Dst)
	case r.Gateway.Is4In6(), r.Gateway.Is4() && r.Dst.Addr().Is6():
		return fmt.Errorf("%s cannot be a gateway to %s", r.Gateway, r.Dst)
	case r.Source.IsValid() && r.Source.Is4() != r.Dst.Addr().Is4():
		return fmt.Errorf("%s cannot be a source for %s", r.Source, r.Dst)
	case r.Metric > math.MaxInt32:
		return fmt.Errorf("metric %d is too large", r.Metric)
	}
	return nil
}

// String returns the route for errors.
func (r Route) String() string {
	s := "route " + r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	return s
}

// newRoute returns the library's form of a route.
func newRoute(r Route) *netlink.Route {
	n := &netlink.Route{
		Dst: ipNetOf(r.Dst), LinkIndex: r.Link, Priority: int(r.Metric),
		Protocol: netlink.RouteProtocol(r.Protocol), Type: int(r.Type), Scope: r.scope(),
	}
	if r.Source.IsValid() {
		n.Src = r.Source.AsSlice()
	}
	switch gateway := r.Gateway.WithZone(""); {
	case !gateway.IsValid():
	case gateway.Is4() == r.Dst.Addr().Is4():
		n.Gw = gateway.AsSlice()
	default:
		n.Via = &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: gateway.AsSlice()}
	}
	if r.OnLink {
		n.SetFlag(netlink.FLAG_ONLINK)
	}
	return n
}

// scope returns how far an IPv4 route leads; IPv6 has no scopes of routes.
func (r Route) scope() netlink.Scope {
	if r.Dst.Addr().Is4() && !r.Gateway.IsValid() && cmp.Or(r.Type, unix.RTN_UNICAST) == unix.RTN_UNICAST {
		return netlink.SCOPE_LINK
	}
	return netlink.SCOPE_UNIVERSE
}

// AddRoute adds a route. fs.ErrExist if it exists, or another one to the same
// destination with the same metric.
func (h *Handle) AddRoute(r Route) error {
	err := r.check()
	if err == nil {
		err = translate(h.rt.RouteAdd(newRoute(r)))
	}
	if err != nil {
		return fmt.Errorf("add %s: %w", r, err)
	}
	return nil
}

// DeleteRoute removes a route. It returns nil if there is none. Fields that are not
// set match any route, and the first match is removed.
func (h *Handle) DeleteRoute(r Route) error {
	err := r.check()
	if err == nil {
		n := newRoute(r)
		n.Scope = netlink.SCOPE_NOWHERE // any
		err = translate(h.rt.RouteDel(n))
	}
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete %s: %w", r, err)
	}
	return nil
}

// RouteFilter selects the routes to read.
type RouteFilter struct {
	Family   uint8 // unix.AF_INET or AF_INET6; 0 is both
	Protocol uint8 // unix.RTPROT_*, 0 for all
}

// Routes returns routes of the main table, without cached ones.
func (h *Handle) Routes(f RouteFilter) ([]Route, error) {
	var all []Route
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if f.Family != 0 && f.Family != family {
			continue
		}
		found, err := h.listRoutes(int(family), f.Protocol)
		// The family has no such table, or the kernel has no such family.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, n := range found {
			all = append(all, routesOf(n)...)
		}
	}
	return all, nil
}

func (h *Handle) listRoutes(family int, protocol uint8) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: netlink.RouteProtocol(protocol)}
	mask := netlink.RT_FILTER_TABLE
	if protocol != 0 {
		mask |= netlink.RT_FILTER_PROTOCOL
	}
	return read(func() ([]netlink.Route, error) { return h.rt.RouteListFiltered(family, filter, mask) })
}

// routesOf returns a Route for each path of a route of the library. It returns none
// for a route of another family.
func routesOf(n netlink.Route) []Route {
	if n.Dst == nil {
		return nil
	}
	r := Route{
		Dst: prefixOf(n.Dst), Link: n.LinkIndex, Source: addrOf(n.Src),
		Metric: uint32(n.Priority), Protocol: uint8(n.Protocol), Type: uint8(n.Type),
	}
	if !r.Dst.IsValid() {
		return nil
	}
	if len(n.MultiPath) == 0 {
		return []Route{r.path(n.Flags, n.Gw, n.Via)}
	}
	paths := make([]Route, len(n.MultiPath))
	for i, hop := range n.MultiPath {
		r.Link = hop.LinkIndex
		paths[i] = r.path(hop.Flags, hop.Gw, hop.Via)
	}
	return paths
}

// path returns r with what each path has of its own. The gateway of an IPv4 route
// may be an IPv6 address.
func (r Route) path(flags int, gateway []byte, via netlink.Destination) Route {
	r.OnLink = flags&unix.RTNH_F_ONLINK != 0
	r.Dead = flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0
	r.Gateway = addrOf(gateway)
	if v, ok := via.(*netlink.Via); ok {
		r.Gateway = addrOf(v.Addr)
	}
	return r
}
