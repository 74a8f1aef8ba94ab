package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
)

// loopback is the index of the loopback interface in every namespace
// (LOOPBACK_IFINDEX in net/flow.h).
const loopback = 1

// Inside is the desired state of a pod's namespace, besides its loopback interface.
type Inside struct {
	Interface string // an existing link
	Addresses []netip.Prefix
	// Gateways are the gateways of the default routes, at most one for each family. A
	// gateway that no prefix of the addresses contains is assumed to be on the link.
	Gateways []netip.Addr
}

// Configure brings the loopback and the interface up, and adds the addresses and default
// routes that do not exist. Others stay. IPv6 addresses are usable at once. It returns
// the interface. ErrNotFound if there is none; fs.ErrExist if an address or a default
// route exists but differs.
func (h *Handle) Configure(in Inside) (Link, error) {
	if err := in.check(); err != nil {
		return Link{}, fmt.Errorf("configure %s: %w", in.Interface, err)
	}
	l, err := h.Link(in.Interface)
	if err != nil {
		return Link{}, fmt.Errorf("configure network namespace: %w", err)
	}
	if err := h.configureLink(l.Index, in); err != nil {
		return Link{}, fmt.Errorf("configure %s: %w", in.Interface, err)
	}
	l.Up = true
	return l, nil
}

func (h *Handle) configureLink(index int, in Inside) error {
	for _, i := range []int{loopback, index} {
		if err := translate(h.rt.LinkSetUp(withIndex(i))); err != nil {
			return fmt.Errorf("bring up: %w", err)
		}
	}
	for _, p := range in.Addresses {
		err := translate(h.rt.AddrAdd(nil, newAddr(index, p)))
		list := func() ([]Address, error) { return h.Addresses(index) }
		if err := unlessExists(err, list, func(a Address) bool { return a.Prefix == p }); err != nil {
			return fmt.Errorf("address %s: %w", p, err)
		}
	}
	for _, g := range in.Gateways {
		r := Route{Dst: DefaultDestination(g), Gateway: g, Link: index, OnLink: !in.reaches(g)}
		err := translate(h.rt.RouteAdd(newRoute(r)))
		list := func() ([]Route, error) { return h.Routes(RouteFilter{}) }
		if err := unlessExists(err, list, r.is); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
	}
	return nil
}

// unlessExists returns the error of adding an object, nil if the error is fs.ErrExist
// and one of the list is the desired object.
func unlessExists[T any](added error, list func() ([]T, error), is func(T) bool) error {
	if !errors.Is(added, fs.ErrExist) {
		return added
	}
	have, err := list()
	if err == nil && !slices.ContainsFunc(have, is) {
		err = added
	}
	return err
}

// is reports whether an existing route is the desired one.
func (r Route) is(have Route) bool {
	if r.Metric == 0 && r.Dst.Addr().Is6() {
		r.Metric = 1024 // IP6_RT_PRIO_USER
	}
	return r.Dst == have.Dst && r.Gateway.WithZone("") == have.Gateway && r.Link == have.Link && r.Metric == have.Metric
}

// BringUpLoopback brings the loopback interface up.
func (h *Handle) BringUpLoopback() error {
	if err := translate(h.rt.LinkSetUp(withIndex(loopback))); err != nil {
		return fmt.Errorf("bring up loopback interface: %w", err)
	}
	return nil
}

// LoopbackUp reports whether the loopback interface is up.
func (h *Handle) LoopbackUp() (bool, error) {
	l, err := h.LinkByIndex(loopback)
	return l.Up, err
}

func (in Inside) check() error {
	for _, p := range in.Addresses {
		if err := validAddress(p); err != nil {
			return err
		}
	}
	for _, g := range in.Gateways {
		if !g.IsValid() {
			return errors.New("a gateway has no address")
		}
		if err := (Route{Dst: DefaultDestination(g), Gateway: g}).check(); err != nil {
			return err
		}
	}
	return nil
}

// DefaultDestination returns the destination of the default route of an address's family.
func DefaultDestination(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// reaches reports whether a prefix of the addresses contains the gateway.
func (in Inside) reaches(gateway netip.Addr) bool {
	return slices.ContainsFunc(in.Addresses, func(p netip.Prefix) bool { return p.Contains(gateway.WithZone("")) })
}
