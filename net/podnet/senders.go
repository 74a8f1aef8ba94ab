package podnet

import (
	"errors"
	"net"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
)

// senderOf is what the pod of a lease may send from.
func senderOf(l ipam.Lease) nft.Sender {
	d, _ := detailOf(l)
	return nft.Sender{Port: hostName(l.Owner), MAC: d.mac(l), Addresses: l.Addresses}
}

// mac is the MAC address of a lease's pod, nil for a lease without an address.
func (d detail) mac(l ipam.Lease) net.HardwareAddr {
	switch {
	case d.MAC != nil:
		return d.MAC
	case len(l.Addresses) == 0:
		return nil
	}
	return macOf(l.Addresses[0])
}

// senders are those of all leases.
func (n *Network) senders() ([]nft.Sender, error) {
	leases, err := n.leases.All()
	if err != nil {
		return nil, err
	}
	all := make([]nft.Sender, len(leases))
	for i, l := range leases {
		all[i] = senderOf(l)
	}
	return all, nil
}

// withSenders does something with the table of what pods send from. A kernel
// that cannot have it has pods start all the same.
func (n *Network) withSenders(do func(*nft.Senders) error) error {
	table, err := n.openSenders()
	if err == nil {
		err = errors.Join(do(table), table.Close())
	}
	if errors.Is(err, nft.ErrNoBridgeFamily) {
		return nil
	}
	return err
}

// restrict has a pod send from its own addresses alone.
func (n *Network) restrict(s nft.Sender) error {
	return n.withSenders(func(t *nft.Senders) error { return t.Add(s, n.senders) })
}

// forget takes away what restrict has made. The interface is gone before.
func (n *Network) forget(l ipam.Lease) error {
	s := senderOf(l)
	if s.MAC == nil {
		return nil // what there may be goes with the next look at all
	}
	return absent(n.withSenders(func(t *nft.Senders) error { return t.Remove(s) }))
}

// absent is nil for an error of a kernel that can have no rules: there are none
// to take away.
func absent(err error) error {
	if errors.As(err, new(*nft.Unsupported)) {
		return nil
	}
	return err
}

// restrictAll does for all leases what restrict does, and forgets what has
// none.
func (n *Network) restrictAll() error {
	return n.withSenders(func(t *nft.Senders) error { return t.Sync(n.senders) })
}
