package network

import (
	"bytes"
	"slices"
	"time"

	"github.com/tinylet/tinylet/net/cni"
)

// directWriteInterval is the minimum interval between two writes of the file that change only
// Direct: other nodes may come and go all the time, and the file is on flash. The
// first write is immediate.
//
// The rules get Direct at once in any case. Until the file has it too, ADD of the
// plugin resets the rules to those of the file. The agent observes that (RuleWatches)
// and repairs it within a second. In that second, a pod may open connections with
// this node's address that should have the pod's own.
const directWriteInterval = time.Minute

// configure writes the conflist of c, by which the runtime calls the plugin. have
// is the file's content, and was the configuration in it. A change of Direct alone
// may be deferred (directWriteInterval).
func (n *Network) configure(c, was cni.Config, have []byte) error {
	data, err := cni.Conflist(c, networkName)
	if err != nil {
		return err
	}
	n.pending = nil
	direct := directAlone(c, was, have)
	if direct && time.Since(n.directWritten) < directWriteInterval {
		n.pending = data
		return nil
	}
	if err := n.write(data, c); err != nil {
		return err
	}
	if direct {
		n.directWritten = time.Now()
	}
	return nil
}

// directAlone reports whether the file differs from c only in Direct.
func directAlone(c, was cni.Config, have []byte) bool {
	if slices.Equal(c.Direct, was.Direct) {
		return false
	}
	c.Direct = was.Direct
	data, err := cni.Conflist(c, networkName)
	return err == nil && bytes.Equal(data, have)
}

// flush writes the pending configuration when Run ends: the plugin resets the rules to
// those of the file, and no agent repairs them then.
func (n *Network) flush() {
	if n.pending == nil {
		return
	}
	if _, err := n.folder.write(n.pending); err != nil {
		n.cfg.Log.Warn("cannot write pending network configuration", "error", err)
	}
}
