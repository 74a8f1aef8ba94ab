package network

import (
	"context"
	"slices"

	"github.com/tinylet/tinylet/net/cni"
)

// leave takes away what pods have shared in a mode of before, once no pod is on
// it: its bridge would draw what goes to the addresses of others' networks.
func (n *Network) leave(ctx context.Context, was cni.Config) {
	if n.gone || n.cfg.Dismantle == nil {
		return
	}
	c := settled(n.cfg.Settings)
	if was.Bridge != "" {
		c.Bridge = was.Bridge
	}
	empty, err := n.emptied(ctx, c)
	if err == nil && empty {
		err = n.cfg.Dismantle(c.Bridge)
	}
	if err != nil {
		n.cfg.Log.Warn("what pods have shared in another network.mode is left until the next start", "bridge", c.Bridge, "error", err)
	}
	n.gone = empty || err != nil
}

// emptied takes away the networks of pods that are no more, and says whether
// there are no others.
func (n *Network) emptied(ctx context.Context, c cni.Config) (empty bool, err error) {
	if err := n.open(c); err != nil {
		return false, err
	}
	defer n.close()
	return n.collect(ctx)
}

// bridge is the one that pods are to be on: a new name has to wait until none
// is on the old one, since both would have the same addresses.
func (n *Network) bridge(wanted *cni.Config, was cni.Config) error {
	if was.Bridge == wanted.Bridge || len(was.Ranges) == 0 {
		return nil
	}
	if err := n.open(*wanted); err != nil {
		return err
	}
	for _, r := range slices.Concat(was.Ranges, was.Kept) {
		if uses, err := n.pods.Uses(r.Subnet); err != nil {
			return err
		} else if uses {
			wanted.Bridge = was.Bridge
			return nil
		}
	}
	if n.cfg.Dismantle == nil {
		return nil
	}
	return n.cfg.Dismantle(was.Bridge)
}
