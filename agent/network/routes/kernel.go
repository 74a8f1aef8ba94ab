package routes

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/link"
)

// Protocol is the number by which the kernel knows the routes of this package.
// It is one that neither linux/rtnetlink.h nor iproute2 names, and that no
// routing daemon takes.
const Protocol = 116

// Kernel is what is asked of the kernel, as *link.Handle does it.
type Kernel interface {
	Links() ([]link.Link, error)
	Addresses(index int) ([]link.Address, error)
	Routes(f link.RouteFilter) ([]link.Route, error)
	AddRoute(r link.Route) error
	DeleteRoute(r link.Route) error
	Close() error
}

// read reads what counts of this machine. Pods' own bridge leads to no node.
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
	// One that has lost its carrier keeps its routes: it may be back at once.
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

// linked are the networks that others' routes have on a link, such as those
// behind a tunnel. What leads a good part of the world there says nothing.
func linked(routes []link.Route) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range routes {
		if !foreign(r) || r.Gateway.IsValid() || r.Type > unix.RTN_UNICAST || wide(r.Dst) {
			continue
		}
		all = append(all, r.Dst)
	}
	return all
}

func foreign(r link.Route) bool { return r.Protocol != Protocol }

// sync makes the routes of this package those, of all that there are, and
// answers those of them that lead where they should: others' routes to the same
// networks stay, and so does what they lead. What the kernel does not take, such
// as a gateway that no node can be, is a fault of what is wanted. It goes on
// after what fails.
func sync(k Kernel, all, want []link.Route) (there []link.Route, faults []string, err error) {
	var errs []error
	for _, r := range all {
		if !foreign(r) && !slices.ContainsFunc(want, func(w link.Route) bool { return alike(w, r) }) {
			errs = append(errs, k.DeleteRoute(r))
		}
	}
	for _, w := range want {
		ok, err := lead(k, all, w)
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

// lead has a route be there, unless somebody else's leads to the same network:
// with another metric than the kernel's own, ours would go before it.
func lead(k Kernel, all []link.Route, w link.Route) (ok bool, err error) {
	others := false
	for _, r := range all {
		if alike(w, r) {
			return true, nil
		}
		others = others || foreign(r) && r.Dst == w.Dst
	}
	if !others {
		err = k.AddRoute(w)
	}
	if others || errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("another route to %v is there: remove it (ip route del %v), or whoever makes it", w.Dst, w.Dst)
	}
	return err == nil, err
}

// alike says whether two routes are the same way to the same network.
func alike(a, b link.Route) bool {
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
	all := make([]netip.Prefix, 0, len(routes))
	for _, r := range routes {
		if !slices.Contains(all, r.Dst) {
			all = append(all, r.Dst)
		}
	}
	slices.SortFunc(all, compare)
	return all
}
