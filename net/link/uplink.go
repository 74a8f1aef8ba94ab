package link

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrNoRoute means that there is no default route over a link that can carry packets.
var ErrNoRoute = errors.New("no default route")

// Uplink is the link of the node's default route.
type Uplink struct {
	Link Link
	// V4 and V6 are the addresses of global scope on that link that identify the node,
	// best first: the preferred source address of a default route comes first.
	// Deprecated, tentative and temporary addresses are left out.
	V4, V6 []netip.Addr
	// Gateway4 and Gateway6 are the gateways of the best default route over that link of
	// each family; the zero value if there is none.
	Gateway4, Gateway6 netip.Addr
}

// DefaultRoute returns the default route of the main table with the lowest metric
// whose link is up and running. ErrNoRoute if there is none.
func (h *Handle) DefaultRoute(v6 bool) (Route, error) {
	r, _, err := h.defaultRoute(v6)
	return r, err
}

func (h *Handle) defaultRoute(v6 bool) (Route, Link, error) {
	f := RouteFilter{Family: unix.AF_INET}
	if v6 {
		f.Family = unix.AF_INET6
	}
	all, err := h.Routes(f)
	if err != nil {
		return Route{}, Link{}, err
	}
	for _, r := range candidates(all) {
		l, err := h.LinkByIndex(r.Link)
		switch {
		case errors.Is(err, ErrNotFound): // removed meanwhile
		case err != nil:
			return Route{}, Link{}, err
		case l.Up && l.Running:
			return r, l, nil
		}
	}
	return Route{}, Link{}, ErrNoRoute
}

// candidates returns the usable default routes, the best first.
func candidates(all []Route) []Route {
	all = slices.DeleteFunc(all, func(r Route) bool {
		return !r.Default() || r.Type != unix.RTN_UNICAST || r.Dead || r.Link == 0
	})
	slices.SortStableFunc(all, func(a, b Route) int { return cmp.Compare(a.Metric, b.Metric) })
	return all
}

// Uplink returns the link of the best IPv4 default route, or of the best IPv6 default
// route if there is no IPv4 one, with its addresses. ErrNoRoute if there is neither.
func (h *Handle) Uplink() (Uplink, error) {
	r4, l4, err := h.defaultRoute(false)
	if err != nil && !errors.Is(err, ErrNoRoute) {
		return Uplink{}, fmt.Errorf("find uplink: %w", err)
	}
	r6, l6, err6 := h.defaultRoute(true)
	if err6 != nil && !errors.Is(err6, ErrNoRoute) {
		return Uplink{}, fmt.Errorf("find uplink: %w", err6)
	}
	u := Uplink{Link: l4, Gateway4: r4.Gateway}
	switch {
	case err != nil && err6 != nil:
		return Uplink{}, fmt.Errorf("find uplink: %w", ErrNoRoute)
	case err != nil:
		u.Link = l6
	}
	if err6 == nil && l6.Index == u.Link.Index {
		u.Gateway6 = r6.Gateway
	} else {
		r6 = Route{}
	}
	addresses, err := h.Addresses(u.Link.Index)
	if err != nil {
		return Uplink{}, fmt.Errorf("find addresses of uplink %s: %w", u.Link.Name, err)
	}
	u.V4, u.V6 = usable(addresses, false, r4.Source), usable(addresses, true, r6.Source)
	return u, nil
}

// usable returns the addresses of a family that can identify the node for long, with
// the address first in front.
func usable(all []Address, v6 bool, first netip.Addr) (some []netip.Addr) {
	for _, a := range all {
		if a.Prefix.Addr().Is6() == v6 && a.Global() && !a.Deprecated() && !a.Tentative() && !a.Temporary() {
			some = append(some, a.Prefix.Addr())
		}
	}
	if i := slices.Index(some, first); i > 0 {
		some = slices.Insert(slices.Delete(some, i, i+1), 0, first)
	}
	return some
}
