package network

import (
	"bytes"
	"slices"
	"time"

	"github.com/tinylet/tinylet/net/cni"
)

// sparing is the shortest time between two writes of the file that are for
// Direct alone: nodes may come and go all the time, and the file is on flash.
// The first is at once.
//
// The rules have Direct at once in any case. Until the file has it as well, the
// plugin's ADD puts the rules back to what the file says, since it makes them of
// that; this is heard of (Watches) and mended within a second, in which a pod
// may begin connections with this node's address that ought to have its own.
const sparing = time.Minute

// configure has the runtime call the plugin. The file says have now, which was
// is read of.
func (n *Network) configure(c, was cni.Config, have []byte) error {
	data, err := cni.Conflist(c, networkName, "")
	if err != nil {
		return err
	}
	n.late = nil
	direct := directAlone(c, was, have)
	if direct && time.Since(n.spared) < sparing {
		n.late = data
		return nil
	}
	if err := n.write(data, c); err != nil {
		return err
	}
	if direct {
		n.spared = time.Now()
	}
	return nil
}

// directAlone says that the file differs from what c wants by Direct alone.
func directAlone(c, was cni.Config, have []byte) bool {
	if slices.Equal(c.Direct, was.Direct) {
		return false
	}
	c.Direct = was.Direct
	data, err := cni.Conflist(c, networkName, "")
	return err == nil && bytes.Equal(data, have)
}

// due is how long the file may stay as it is; 0 is for good.
func (n *Network) due() time.Duration {
	if n.late == nil {
		return 0
	}
	return max(0, sparing-time.Since(n.spared))
}

// finish leaves the file as the plugin needs it while nobody mends the rules.
func (n *Network) finish() {
	if n.late == nil {
		return
	}
	if _, err := n.folder.write(n.late); err != nil {
		n.cfg.Log.Warn("the network configuration is behind the rules until the next start", "error", err)
	}
}
