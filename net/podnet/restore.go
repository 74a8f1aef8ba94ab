package podnet

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
)

// holder is a lease with host ports that are not being removed. not are reserved
// ports that an earlier configuration allowed.
type holder struct {
	owner      string
	ports, not []nft.Port
}

// holders returns all holders, the oldest first: if two have the same port, the older
// one most likely had it.
func (n *Network) holders() ([]holder, error) {
	leases, err := n.leases.List()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(leases, func(a, b ipam.Lease) int { return a.Time.Compare(b.Time) })
	var all []holder
	for _, l := range leases {
		if d, _ := detailOf(l); len(d.Ports) > 0 && !d.Leaving {
			may, not := n.cfg.allowed(d.Ports)
			all = append(all, holder{l.Owner, may, not})
		}
	}
	n.did("leases listed")
	return all, nil
}

// ensureRules creates the rules if they do not exist or differ.
func (n *Network) ensureRules(table *nft.Table) error {
	return n.withPorts(table, func(ports func() ([]nft.Port, error)) error {
		_, err := table.Ensure(n.cfg.base(), ports)
		return err
	})
}

// withPorts calls write, which writes the rules and the ports of all leases in one
// transaction: after a call that is killed, later calls check only the rules. It then
// removes the ports of pods that were torn down meanwhile, because Teardown may have
// removed them before write added them.
func (n *Network) withPorts(table *nft.Table, write func(ports func() ([]nft.Port, error)) error) error {
	var put []nft.Port
	err := write(func() ([]nft.Port, error) {
		holders, err := n.holders()
		put = nil
		for _, h := range holders {
			put = append(put, h.ports...)
		}
		return put, err
	})
	if err != nil || len(put) == 0 {
		return err
	}
	holders, err := n.holders()
	if err != nil {
		return err
	}
	stay := make(map[string]bool, len(holders))
	for _, h := range holders {
		stay[h.owner] = true
	}
	return table.RemovePorts(slices.DeleteFunc(put, func(p nft.Port) bool { return stay[p.Owner] }))
}

// restorePorts adds missing ports of all leases and removes reserved ones. It
// continues after an error. It ignores *nft.PortTaken: the ADD that gets this error reports
// it, and its lease may remain if the call was killed. One port must not prevent the network
// of all pods, nor Collect, which removes such a lease.
func (n *Network) restorePorts(table *nft.Table) error {
	holders, err := n.holders()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range holders {
		err := n.restore(table, h)
		if errors.As(err, new(*nft.PortTaken)) {
			err = nil
		}
		errs = append(errs, err, table.RemovePorts(h.not))
	}
	return errors.Join(errs...)
}

// restore adds the ports of one lease, and removes them again if the pod is torn down
// meanwhile, because Teardown may have removed them before.
func (n *Network) restore(table *nft.Table, h holder) error {
	if err := table.AddPorts(h.ports); err != nil {
		return err
	}
	l, err := n.leases.Get(h.owner)
	if d, _ := detailOf(l); d.Leaving || errors.Is(err, fs.ErrNotExist) {
		return table.RemovePorts(h.ports)
	}
	return err
}
