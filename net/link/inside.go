package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"golang.org/x/sys/unix"
)

// loopback is the index that the kernel gives it in every namespace
// (LOOPBACK_IFINDEX in net/flow.h).
const loopback = 1

// Inside is what a pod's namespace has to have, beside its loopback.
type Inside struct {
	Interface string // of the link that is there
	Addresses []netip.Prefix
	// Gateways are where the default routes lead, one for each family at most.
	// One that is in no prefix of the addresses is taken to be on the link.
	Gateways []netip.Addr
	// Routes are others. Link 0 is the interface; gateways are as above.
	Routes []Route
}

// Configure brings the loopback and the interface up, and adds what is missing
// of the addresses and routes; what else is there stays. IPv6 addresses work
// at once. The Link is the interface; one that is missing gives ErrNotFound,
// and an address or a route that is there otherwise than it should be
// fs.ErrExist.
func (h *Handle) Configure(in Inside) (Link, error) {
	if err := in.check(); err != nil {
		return Link{}, fmt.Errorf("configure %s: %w", in.Interface, err)
	}
	l, err := h.Link(in.Interface)
	if err != nil {
		return Link{}, fmt.Errorf("configure a namespace: %w", err)
	}
	routes := in.routes(l.Index)
	err = h.fill(l.Index, in.Addresses, routes)
	if errors.Is(err, fs.ErrExist) {
		err = h.complete(l.Index, in.Addresses, routes)
	}
	if err != nil {
		return Link{}, fmt.Errorf("configure %s: %w", in.Interface, err)
	}
	l.Up = true
	return l, nil
}

// BringUpLoopback brings the loopback interface up; one that is up stays so.
func (h *Handle) BringUpLoopback() error {
	h.b.Reset()
	h.b.Begin(unix.RTM_NEWLINK, 0)
	header(&h.b, loopback, unix.IFF_UP, unix.IFF_UP)
	if err := h.do(); err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
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
		if err := (Route{Dst: everything(g), Gateway: g}).check(); err != nil {
			return err
		}
	}
	for _, r := range in.Routes {
		if err := r.check(); err != nil {
			return err
		}
	}
	return nil
}

// everything is the destination of the default routes of an address's family.
func everything(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// routes are all routes, in an order in which none is needed by one before it.
func (in Inside) routes(index int) []Route {
	all := make([]Route, 0, len(in.Gateways)+len(in.Routes))
	for _, r := range in.Routes {
		if r.Link == 0 {
			r.Link = index
		}
		r.OnLink = r.OnLink || !in.reaches(r.Gateway)
		all = append(all, r)
	}
	for _, g := range in.Gateways {
		all = append(all, Route{Dst: everything(g), Gateway: g, Link: index, OnLink: !in.reaches(g)})
	}
	return all
}

// reaches says whether an address's prefix has the gateway. There is nothing
// to reach where there is none.
func (in Inside) reaches(gateway netip.Addr) bool {
	if !gateway.IsValid() {
		return true
	}
	for _, p := range in.Addresses {
		if p.Contains(gateway.WithZone("")) {
			return true
		}
	}
	return false
}

// fill brings both links up and adds the addresses and routes.
func (h *Handle) fill(index int, addresses []netip.Prefix, routes []Route) error {
	h.b.Reset()
	for _, i := range []int{loopback, index} {
		h.b.Begin(unix.RTM_NEWLINK, 0)
		header(&h.b, i, unix.IFF_UP, unix.IFF_UP)
	}
	for _, p := range addresses {
		addAddress(&h.b, index, p, unix.NLM_F_EXCL)
	}
	for _, r := range routes {
		r.put(&h.b, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	}
	err := h.do()
	if err == nil {
		return nil
	}
	switch i := at(err); {
	case i < 0:
		return err
	case i < 2:
		return fmt.Errorf("bring up: %w", err)
	case i < 2+len(addresses):
		return fmt.Errorf("address %s: %w", addresses[i-2], err)
	default:
		return fmt.Errorf("%s: %w", routes[i-2-len(addresses)], err)
	}
}

// complete adds what is missing where something is there already.
func (h *Handle) complete(index int, addresses []netip.Prefix, routes []Route) error {
	haveAddresses, err := h.addresses(index)
	if err != nil {
		return err
	}
	haveRoutes, err := h.routes(RouteFilter{})
	if err != nil {
		return err
	}
	return h.fill(index,
		without(addresses, haveAddresses, func(p netip.Prefix, a Address) bool { return a.Prefix == p }),
		without(routes, haveRoutes, Route.is))
}

// without is what is wanted less what is there.
func without[W, H any](want []W, have []H, same func(W, H) bool) []W {
	var left []W
	for _, w := range want {
		found := false
		for _, h := range have {
			found = found || same(w, h)
		}
		if !found {
			left = append(left, w)
		}
	}
	return left
}

// is says whether the kernel's route is the one that is wanted.
func (r Route) is(have Route) bool {
	if r.Metric == 0 && r.Dst.Addr().Is6() {
		r.Metric = 1024 // IP6_RT_PRIO_USER
	}
	return r.Dst == have.Dst && r.Gateway.WithZone("") == have.Gateway && r.Link == have.Link &&
		r.Metric == have.Metric && (r.Table == 0 || r.Table == have.Table)
}
