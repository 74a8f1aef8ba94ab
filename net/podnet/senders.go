package podnet

import (
	"errors"
	"net"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// senderOf returns the source addresses that the pod of a lease may use.
func senderOf(l ipam.Lease) nft.Sender {
	d, _ := detailOf(l)
	return nft.Sender{Port: hostName(l.Owner), MAC: d.mac(l), Addresses: l.Addresses}
}

// mac returns the MAC address of a lease's pod, nil for a lease without an address.
func (d detail) mac(l ipam.Lease) net.HardwareAddr {
	switch {
	case d.MAC != nil:
		return d.MAC
	case len(l.Addresses) == 0:
		return nil
	}
	return macOf(l.Addresses[0])
}

// senders returns the senders of all leases.
func (n *Network) senders() ([]nft.Sender, error) {
	leases, err := n.leases.List()
	if err != nil {
		return nil, err
	}
	all := make([]nft.Sender, len(leases))
	for i, l := range leases {
		all[i] = senderOf(l)
	}
	return all, nil
}

// withSenders calls do with the table of source addresses. It returns nil on a kernel that
// does not support the table: pods then start without the restriction.
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

// restrict limits a pod to its own source addresses.
func (n *Network) restrict(s nft.Sender) error {
	return n.withSenders(func(t *nft.Senders) error { return t.Add(s, n.senders) })
}

// forget removes what restrict has added. Before, it sets the interface down, by which the
// pod could send unrestricted. The caller removes the interface and then closes the table,
// which is nil if nothing had to be removed: the close of a netlink socket waits for the RCU
// grace period after which the kernel frees elements (nft_rcv_nl_event in
// net/netfilter/nf_tables_api.c), and that ends while the interface is removed.
func (n *Network) forget(host *link.Handle, l ipam.Lease) (*nft.Senders, error) {
	s := senderOf(l)
	if s.MAC == nil {
		return nil, nil // restrictAll removes what there may be
	}
	if err := host.SetDown(s.Port); err != nil {
		return nil, err
	}
	table, err := n.openSenders()
	if err != nil {
		return nil, absent(err)
	}
	err = table.Remove(s)
	n.did("unrestricted")
	return table, err
}

// absent returns nil for the error of a kernel without nftables, or without its family
// bridge: there are no rules to remove.
func absent(err error) error {
	if errors.As(err, new(*nft.Unsupported)) || errors.Is(err, nft.ErrNoBridgeFamily) {
		return nil
	}
	return err
}

// restrictAll limits the pods of all leases to their source addresses, and removes
// entries without a lease.
func (n *Network) restrictAll() error {
	return n.withSenders(func(t *nft.Senders) error { return t.Sync(n.senders) })
}
