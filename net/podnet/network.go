package podnet

import (
	"fmt"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
)

// Network is the network of one node's pods, in the network namespace that its
// methods are called in. They block on the kernel and the file system alone,
// and are safe for concurrent use, also by several processes, for different
// IDs.
type Network struct {
	cfg         Config
	leases      *ipam.Store
	openSenders func() (*nft.Senders, error)

	// step is told of every step that is done; tests die in it.
	step func(name string)
}

// New opens the leases; nothing is made yet.
func New(c Config) (*Network, error) {
	c, err := c.complete()
	if err != nil {
		return nil, fmt.Errorf("pods' network: %w", err)
	}
	leases, err := ipam.Open(ipam.Config{Dir: c.StateDir})
	if err != nil {
		return nil, fmt.Errorf("pods' network: %w", err)
	}
	return &Network{cfg: c, leases: leases, openSenders: nft.OpenSenders}, nil
}

// Close lets go of the leases' folder. What was made stays.
func (n *Network) Close() error { return n.leases.Close() }

func (n *Network) did(step string) {
	if n.step != nil {
		n.step(step)
	}
}
