package podnet

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
)

// Used returns those of the ranges in which a pod has an address.
func (n *Network) Used(ranges []ipam.Range) ([]ipam.Range, error) {
	leases, err := n.leases.List()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ranges), func(r ipam.Range) bool {
		return !slices.ContainsFunc(leases, func(l ipam.Lease) bool { return slices.ContainsFunc(l.Addresses, r.Prefix.Contains) })
	}), nil
}

// Entry describes one pod's network.
type Entry struct {
	ID        cni.ID
	Pod       string // namespace/name, "" if unknown
	Interface string // on the host's side
	Addresses []netip.Addr
	Ports     []nft.Port
	Since     time.Time // the clock may have been wrong
}

// List returns the networks of all pods, in the order of their addresses.
func (n *Network) List() ([]Entry, error) {
	leases, err := n.leases.List()
	if err != nil {
		return nil, fmt.Errorf("list networks of pods: %w", err)
	}
	entries := make([]Entry, len(leases))
	for i, l := range leases {
		entries[i] = entryOf(l)
	}
	return entries, nil
}

// Entry returns the network of one pod. fs.ErrNotExist if there is none.
func (n *Network) Entry(id cni.ID) (Entry, error) {
	l, err := n.leases.Get(id.Owner())
	if err != nil {
		return Entry{}, err
	}
	return entryOf(l), nil
}

func entryOf(l ipam.Lease) Entry {
	d, _ := detailOf(l)
	return Entry{ID: idOf(l.Owner), Pod: l.Pod, Interface: hostName(l.Owner), Addresses: l.Addresses, Ports: d.Ports, Since: l.Time}
}
