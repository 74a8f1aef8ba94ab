package routes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/link"
)

// Protocol is the routing protocol number of this package's routes. Neither
// linux/rtnetlink.h nor iproute2 names it, and no routing daemon uses it.
const Protocol = 116

// Kernel are the kernel operations that a Router uses. *link.Handle implements it.
type Kernel interface {
	Links() ([]link.Link, error)
	Addresses(index int) ([]link.Address, error)
	Routes(f link.RouteFilter) ([]link.Route, error)
	AddRoute(r link.Route) error
	DeleteRoute(r link.Route) error
	Close() error
}

// read reads the links, addresses and routes of this machine. The pods' bridge
// leads to no node.
func read(k Kernel, bridge string) (host, error) {
	links, err := k.Links()
	if err != nil {
		return host{}, err
	}
	addresses, err := k.Addresses(0)
	if err != nil {
		return host{}, err
	}
	routes, err := k.Routes(link.RouteFilter{})
	if err != nil {
		return host{}, err
	}
	// A link that has lost its carrier keeps its routes, because the carrier may
	// return soon.
	leads, running := make(map[int]bool, len(links)), make(map[int]bool, len(links))
	pods := 0
	for _, l := range links {
		leads[l.Index] = l.Up && !l.Loopback && l.Name != bridge
		running[l.Index] = l.Running
		if l.Name == bridge {
			pods = l.Index
		}
	}
	h := host{routes: routes, taken: linked(routes)}
	for _, a := range addresses {
		h.taken = append(h.taken, a.Prefix.Masked())
		if leads[a.Index] && a.Global() && !a.Tentative() {
			h.reach = append(h.reach, reach{a, running[a.Index]})
		}
		if a.Index == pods && a.Global() {
			h.pods = append(h.pods, a.Prefix.Addr())
		}
	}
	return h, nil
}

// linked returns the networks of others' routes to a link without a gateway, such
// as those behind a tunnel. Routes to networks that are wide are ignored.
func linked(routes []link.Route) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range routes {
		if isForeign(r) && !r.Gateway.IsValid() && r.Type <= unix.RTN_UNICAST && !wide(r.Dst) {
			all = append(all, r.Dst)
		}
	}
	return all
}

func isForeign(r link.Route) bool { return r.Protocol != Protocol }

// sync adds and deletes routes so that those of this package equal want. all are
// the routes of the main table. It returns the wanted routes that exist. Routes of
// others to the same networks stay and take precedence. If the kernel rejects a
// route as invalid, for example because no node can be the gateway, it is a fault
// and not an error. sync continues after an error.
func sync(k Kernel, all, want []link.Route) (there []link.Route, faults []string, err error) {
	var errs []error
	for _, r := range all {
		if !isForeign(r) && !slices.ContainsFunc(want, func(w link.Route) bool { return sameRoute(w, r) }) {
			errs = append(errs, k.DeleteRoute(r))
		}
	}
	for _, w := range want {
		ok, err := ensureRoute(k, all, w)
		switch {
		case ok:
			there = append(there, w)
		case errors.Is(err, unix.EINVAL):
			faults = append(faults, err.Error())
		default:
			errs = append(errs, err)
		}
	}
	return there, faults, errors.Join(errs...)
}

// ensureRoute adds a route unless others have a route to the same network. If that route
// has another metric than the kernel's default, the new route would take precedence
// over it.
func ensureRoute(k Kernel, all []link.Route, w link.Route) (ok bool, err error) {
	others := false
	for _, r := range all {
		if sameRoute(w, r) {
			return true, nil
		}
		others = others || isForeign(r) && r.Dst == w.Dst
	}
	if !others {
		err = k.AddRoute(w)
	}
	if others || errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("add route to %v: another route exists: remove it (ip route del %v), and what creates it", w.Dst, w.Dst)
	}
	return err == nil, err
}

// sameRoute reports whether two routes have the same network, gateway and link.
func sameRoute(a, b link.Route) bool {
	return a.Dst == b.Dst && a.Gateway == b.Gateway && a.Link == b.Link
}

// Clear removes all routes of this package.
func Clear(open func() (Kernel, error)) error {
	k, err := open()
	if err != nil {
		return err
	}
	defer k.Close()
	all, err := k.Routes(link.RouteFilter{Protocol: Protocol})
	if err == nil {
		_, _, err = sync(k, all, nil)
	}
	return err
}

func networks(routes []link.Route) []netip.Prefix {
	all := make([]netip.Prefix, len(routes))
	for i, r := range routes {
		all[i] = r.Dst
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// watch calls notify when a route of this package was deleted, by this process too, in the
// network namespace of the calling thread, until the context ends; it returns nil then.
// Programs that configure links of this host may delete all routes but their own.
func watch(ctx context.Context, notify func()) error {
	return link.WatchRemovedRoutes(ctx, Protocol, notify)
}
