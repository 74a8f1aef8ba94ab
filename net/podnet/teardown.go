package podnet

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Teardown takes a pod's network away: its ports, its interfaces and then its
// lease. The pod's namespace need not be there any more, and nothing of the
// network either.
func (n *Network) Teardown(id ID) error {
	lease, err := n.leases.Get(id.Owner())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		lease = ipam.Lease{Owner: id.Owner()}
	case err != nil:
		return fmt.Errorf("take down the network of %s: %w", id.Owner(), err)
	}
	err = n.leave(lease)
	if err == nil {
		err = n.dismantle(lease)
	}
	if err != nil {
		return fmt.Errorf("take down the network of %s: %w", id.Owner(), err)
	}
	_, _, err = n.leases.Release(id.Owner())
	return err
}

// leave writes down that the lease's ports go, before they do: who puts the
// ports of all leases back at the same time looks again after it has.
func (n *Network) leave(lease ipam.Lease) error {
	d, whole := detailOf(lease)
	if !whole || len(d.Ports) == 0 || d.Leaving {
		return nil
	}
	d.Leaving = true
	data, err := d.encode()
	if err != nil {
		return err
	}
	if err := n.leases.Amend(lease.Owner, data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// dismantle removes what the kernel has for a lease.
func (n *Network) dismantle(lease ipam.Lease) error {
	if err := n.unpublish(lease); err != nil {
		return err
	}
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	if err := host.DeleteLink(hostName(lease.Owner)); err != nil {
		return err
	}
	return n.forget(lease)
}

// unpublish takes the lease's ports away. What a lease that cannot be read had
// is found among all ports.
func (n *Network) unpublish(lease ipam.Lease) error { return absent(unpublish(lease)) }

func unpublish(lease ipam.Lease) error {
	d, whole := detailOf(lease)
	if whole && len(d.Ports) == 0 {
		return nil
	}
	table, err := nft.Open()
	if err != nil {
		return err
	}
	defer table.Close()
	if whole {
		return table.RemovePorts(d.Ports)
	}
	owner := nft.KeptOwner(lease.Owner)
	_, err = table.RemoveOwners(func(o string) bool { return o == owner })
	return err
}
