package network

import (
	"cmp"
	"context"
	"slices"

	"github.com/tinylet/tinylet/net/cni"
)

// removeFormerMode removes the shared network of an earlier mode once no pod uses it. The
// node would route packets to the bridge that are for addresses of other networks. The
// bridge's name is that of the settings or of the file when the mode was left, because both
// may change afterwards. An error is logged when it changes.
func (n *Network) removeFormerMode(ctx context.Context, was cni.Config) {
	if n.formerModeRemoved {
		return
	}
	n.formerBridge = cmp.Or(n.formerBridge, was.Bridge, n.cfg.Settings.Bridge)
	c := baseConfig(n.cfg.Settings)
	c.Bridge = n.formerBridge
	empty, err := n.emptied(ctx, c)
	if err == nil && empty {
		err = n.cfg.Teardown(c.Bridge)
	}
	if err == nil {
		n.formerModeRemoved, n.unremoved = empty, ""
		return
	}
	if n.unremoved != err.Error() {
		n.cfg.Log.Warn("cannot remove network of earlier mode", "bridge", c.Bridge, "error", err)
	}
	n.unremoved = err.Error()
}

// emptied removes the networks of deleted pods, and reports whether no others are
// left.
func (n *Network) emptied(ctx context.Context, c cni.Config) (empty bool, err error) {
	if err := n.open(c); err != nil {
		return false, err
	}
	defer n.close()
	return n.collect(ctx)
}

// bridge sets the bridge of desired to the one that pods must use. A new bridge name
// takes effect only when no pod is on the old bridge, because both would have the
// same addresses.
func (n *Network) bridge(desired *cni.Config, was cni.Config) error {
	if was.Bridge == desired.Bridge || len(was.Ranges) == 0 {
		return nil
	}
	if err := n.open(*desired); err != nil {
		return err
	}
	used, err := n.pods.Used(slices.Concat(was.Ranges, was.Kept))
	if err != nil {
		return err
	}
	if len(used) > 0 {
		desired.Bridge = was.Bridge
		return nil
	}
	return n.cfg.Teardown(was.Bridge)
}
