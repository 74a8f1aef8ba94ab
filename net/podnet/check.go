package podnet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/nft"
)

// ErrChanged means that a pod's network differs from what Setup created.
var ErrChanged = errors.New("it is no longer as it was set up")

// Check compares a pod's network with what Setup created: interfaces, addresses,
// rules and ports. It changes nothing. ErrChanged if something differs.
func (n *Network) Check(p Pod) error {
	if err := n.check(&p); err != nil {
		return fmt.Errorf("check network of %s: %w", p.name(), err)
	}
	return nil
}

func (n *Network) check(p *Pod) error {
	lease, err := n.leases.Get(p.Owner())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it has no lease", ErrChanged)
	}
	if err != nil {
		return err
	}
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	bridge, ok := n.isReady(host)
	if !ok {
		return fmt.Errorf("%w: bridge %s", ErrChanged, n.cfg.Bridge)
	}
	end, err := host.Link(hostName(lease.Owner))
	switch {
	case errors.Is(err, link.ErrNotFound):
		return fmt.Errorf("%w: its interface %s is gone", ErrChanged, hostName(lease.Owner))
	case err != nil:
		return err
	case end.Master != bridge.Index || !end.Up:
		return fmt.Errorf("%w: its interface %s", ErrChanged, end.Name)
	}
	switch hairpin, err := host.Hairpin(end.Index); {
	case err != nil:
		return err
	case hairpin != n.cfg.Hairpin:
		return fmt.Errorf("%w: hairpin mode of its interface %s", ErrChanged, end.Name)
	}
	if err := n.checkInside(p, lease.Addresses); err != nil {
		return err
	}
	d, _ := detailOf(lease)
	ports, _ := n.cfg.allowed(d.Ports)
	if err := n.checkRules(ports); err != nil {
		return err
	}
	return n.checkSender(senderOf(lease))
}

// checkSender checks that the pod can send from its own addresses alone.
func (n *Network) checkSender(s nft.Sender) error {
	return n.withSenders(func(table *nft.Senders) error {
		if err := table.Supported(); err != nil {
			return err
		}
		err := table.Verify()
		if nft.Differs(err) {
			return fmt.Errorf("%w: source addresses of pods: %w", ErrChanged, err)
		}
		if err != nil {
			return err
		}
		has, err := table.Has(s)
		if err == nil && !has {
			err = fmt.Errorf("%w: source addresses of the pod", ErrChanged)
		}
		return err
	})
}

func (n *Network) checkRules(ports []nft.Port) error {
	table, err := nft.Open()
	if err != nil {
		return err
	}
	defer table.Close()
	err = table.Verify(n.cfg.base())
	if nft.Differs(err) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if err != nil || len(ports) == 0 {
		return err
	}
	have, err := table.Ports()
	if err != nil {
		return err
	}
	for _, want := range ports {
		want.Owner = nft.KeptOwner(want.Owner)
		if !slices.Contains(have, want) {
			return fmt.Errorf("%w: host port %v", ErrChanged, want)
		}
	}
	return nil
}

// checkInside checks the pod's namespace.
func (n *Network) checkInside(p *Pod, addresses []netip.Addr) error {
	ns, err := netns.Open(p.NetNS)
	if err != nil {
		return err
	}
	defer ns.Close()
	inside, err := link.OpenIn(ns)
	if err != nil {
		return err
	}
	defer inside.Close()
	l, err := inside.Link(p.Interface)
	switch {
	case errors.Is(err, link.ErrNotFound):
		return fmt.Errorf("%w: interface %s of the pod is gone", ErrChanged, p.Interface)
	case err != nil:
		return err
	case !l.Up:
		return fmt.Errorf("%w: %s of the pod is down", ErrChanged, p.Interface)
	}
	have, err := inside.Addresses(l.Index)
	if err != nil {
		return err
	}
	for _, want := range addresses {
		if !slices.ContainsFunc(have, func(a link.Address) bool { return a.Prefix.Addr() == want }) {
			return fmt.Errorf("%w: the pod has lost its address %v", ErrChanged, want)
		}
	}
	return n.checkRoutes(inside, l.Index, addresses)
}

// checkRoutes checks the pod's default routes.
func (n *Network) checkRoutes(inside *link.Handle, index int, addresses []netip.Addr) error {
	for _, a := range addresses {
		in, _ := n.cfg.rangeOf(a)
		r, err := inside.DefaultRoute(a.Is6())
		if errors.Is(err, link.ErrNoRoute) || err == nil && (r.Link != index || r.Gateway != in.Gateway) {
			return fmt.Errorf("%w: the pod's default route via %v", ErrChanged, in.Gateway)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Ready returns why no pod can be set up now, nil if one can. It changes nothing. Missing
// or changed shared state is no error, because Setup of the next pod creates it.
func (n *Network) Ready() error {
	if err := n.canBeMade(); err != nil {
		return fmt.Errorf("pod network is not ready: %w", err)
	}
	return nil
}

func (n *Network) canBeMade() error {
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	l, err := host.Link(n.cfg.Bridge)
	switch {
	case errors.Is(err, link.ErrNotFound):
	case err != nil:
		return err
	case l.Kind != "bridge":
		return fmt.Errorf("%s cannot be the pods' bridge: %w (%s)", n.cfg.Bridge, link.ErrOtherKind, cmp.Or(l.Kind, "a device"))
	}
	if len(n.cfg.Ranges) == 0 {
		return errors.New("no range of addresses for pods is configured")
	}
	table, err := nft.Open()
	if err != nil {
		return err
	}
	defer table.Close()
	err = table.Verify(n.cfg.base())
	if nft.Differs(err) {
		return nil
	}
	return err
}
