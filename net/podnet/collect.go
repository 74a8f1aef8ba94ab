package podnet

import (
	"errors"
	"slices"
	"strings"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Collect removes the networks of pods for which lives returns false, such as those
// that ended without Teardown, and orphans of killed calls. gone is the number of
// removed leases, those of earlier boots included. A runtime lists a container only when
// its network exists, so that a caller with such a list must keep entries that are newer
// than the list. Collect continues after an error.
func (n *Network) Collect(lives func(Entry) bool) (gone int, err error) {
	var errs []error
	gone, err = n.leases.Collect(func(l ipam.Lease) bool {
		if lives(entryOf(l)) {
			return true
		}
		if err := n.dismantle(l); err != nil {
			errs = append(errs, err)
			return true
		}
		return false
	})
	errs = append(errs, err)
	restricted := n.restricted.Swap(false) && gone == 0
	return gone, errors.Join(append(errs, n.sweep(restricted))...)
}

// sweep removes interfaces, host ports and source addresses without a lease, and restores
// the source addresses of leases unless they are restricted already. Interfaces of a deleted
// bridge are ports of no bridge. Without a bridge and leases, sweep creates no table of source
// addresses.
func (n *Network) sweep(restricted bool) error {
	// Links are listed before leases: each of them is created after its lease.
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	bridge, err := host.Link(n.cfg.Bridge)
	if err != nil && !errors.Is(err, link.ErrNotFound) {
		return err
	}
	links, err := host.Links()
	if err != nil {
		return err
	}
	var ports []nft.Port
	table, err := nft.Open()
	if err == nil {
		defer table.Close()
		ports, err = table.Ports()
	}
	if err := absent(err); err != nil && !errors.Is(err, nft.ErrNoTable) {
		return err
	}
	leases, err := n.leases.List()
	if err != nil {
		return err
	}
	names, owners := map[string]bool{}, map[string]bool{}
	for _, l := range leases {
		names[hostName(l.Owner)], owners[nft.KeptOwner(l.Owner)] = true, true
	}
	var errs []error
	for _, l := range links {
		ours := l.Kind == "veth" && strings.HasPrefix(l.Alias, alias) && (l.Master == 0 || l.Master == bridge.Index)
		if ours && !names[l.Name] {
			errs = append(errs, host.DeleteLink(l.Name))
		}
	}
	left := slices.DeleteFunc(ports, func(p nft.Port) bool { return owners[p.Owner] })
	if len(left) > 0 {
		errs = append(errs, table.RemovePorts(left))
	}
	if !restricted && (bridge.Index != 0 || len(leases) > 0) {
		errs = append(errs, absent(n.restrictAll()))
	}
	return errors.Join(errs...)
}
