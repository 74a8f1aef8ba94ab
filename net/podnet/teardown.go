package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Teardown removes a pod's network: its host ports, its source addresses, its interfaces
// and then its lease. The pod's namespace need not exist, nor any part of the network.
func (n *Network) Teardown(id cni.ID) error {
	lease, err := n.leases.Get(id.Owner())
	if errors.Is(err, fs.ErrNotExist) {
		lease, err = ipam.Lease{Owner: id.Owner()}, nil
	}
	if err == nil {
		err = n.leave(lease)
	}
	if err == nil {
		err = n.dismantle(lease)
	}
	if err != nil {
		return fmt.Errorf("tear down network of %s: %w", id.Owner(), err)
	}
	return n.leases.Release(id.Owner())
}

// leave records that the lease's ports are removed, before they are. A concurrent call
// that restores the ports of all leases reads the record after it has added them.
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
	return ignoreAbsent(n.leases.SetDetail(lease.Owner, data))
}

// dismantle removes the kernel state of a lease.
func (n *Network) dismantle(lease ipam.Lease) error {
	if err := absent(unpublish(lease)); err != nil {
		return err
	}
	host, err := link.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	table, err := n.forget(host, lease)
	if table != nil {
		defer table.Close()
	}
	return errors.Join(err, host.DeleteLink(hostName(lease.Owner)))
}

// unpublish removes the lease's host ports. For a lease that cannot be parsed, they
// are found among all ports.
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
	if !whole {
		if d.Ports, err = table.Ports(); err != nil {
			return err
		}
		owner := nft.KeptOwner(lease.Owner)
		d.Ports = slices.DeleteFunc(d.Ports, func(p nft.Port) bool { return p.Owner != owner })
	}
	return table.RemovePorts(d.Ports)
}
