package routes

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

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
	// One that has lost its carrier keeps its routes: it may be back at once.
	leads, running := make(map[int]bool, len(links)), make(map[int]bool, len(links))
	for _, l := range links {
		leads[l.Index] = l.Up && !l.Loopback && l.Name != bridge
		running[l.Index] = l.Running
	}
	var h host
	for _, a := range addresses {
		h.taken = append(h.taken, a.Prefix.Masked())
		if leads[a.Index] && a.Global() && !a.Tentative() {
			h.reach = append(h.reach, reach{a, running[a.Index]})
		}
	}
	return h, nil
}

// own are the routes of this package.
func own(k Kernel) ([]link.Route, error) {
	return k.Routes(link.RouteFilter{Protocol: Protocol})
}

// sync makes the routes of this package those, and answers those of them that
// lead where they should: others' routes to the same networks stay. It goes on
// after what fails.
func sync(k Kernel, want []link.Route) (there []link.Route, err error) {
	have, err := own(k)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, r := range have {
		if !slices.ContainsFunc(want, func(w link.Route) bool { return alike(w, r) }) {
			errs = append(errs, k.DeleteRoute(r))
		}
	}
	for _, w := range want {
		if slices.ContainsFunc(have, func(r link.Route) bool { return alike(w, r) }) {
			there = append(there, w)
			continue
		}
		err := k.AddRoute(w)
		if errors.Is(err, fs.ErrExist) {
			err = foreign(k, w)
		}
		if err == nil {
			there = append(there, w)
		}
		errs = append(errs, err)
	}
	return there, errors.Join(errs...)
}

// alike says whether two routes are the same way to the same network.
func alike(a, b link.Route) bool {
	return a.Dst == b.Dst && a.Gateway == b.Gateway && a.Link == b.Link
}

// foreign is what to make of a route of somebody else's in the place of one
// that is wanted: nil if it leads the same way.
func foreign(k Kernel, w link.Route) error {
	all, err := k.Routes(link.RouteFilter{Link: w.Link})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(r link.Route) bool { return alike(w, r) }) {
		return nil
	}
	return fmt.Errorf("another route to %v is there: remove it (ip route del %v), or whoever makes it", w.Dst, w.Dst)
}

// Clear removes all routes of this package.
func Clear(open func() (Kernel, error)) error {
	k, err := open()
	if err != nil {
		return err
	}
	defer k.Close()
	_, err = sync(k, nil)
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
