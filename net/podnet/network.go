package podnet

import (
	"fmt"
	"sync/atomic"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/nft"
)

// Network manages the networks of one node's pods, in the network namespace of the
// calling thread. Its methods block on the kernel and the file system alone, which
// includes calls for the same ID. They are safe for concurrent use for different IDs, also
// by several processes.
type Network struct {
	cfg         config
	leases      *ipam.Store
	openSenders func() (*nft.Senders, error)
	restricted  atomic.Bool // Ensure has called restrictAll, and Collect has not run since then

	// step is called after each step. Tests end the process in it.
	step func(name string)
}

// New opens the leases. It creates nothing in the kernel.
func New(given cni.Config) (*Network, error) {
	c, err := config{given}.complete()
	if err != nil {
		return nil, fmt.Errorf("open pod network: %w", err)
	}
	leases, err := ipam.Open(ipam.Config{Dir: c.StateDir})
	if err != nil {
		return nil, fmt.Errorf("open pod network: %w", err)
	}
	return &Network{cfg: c, leases: leases, openSenders: nft.OpenSenders}, nil
}

// Close closes the directory of the leases. The networks stay.
func (n *Network) Close() error { return n.leases.Close() }

func (n *Network) did(step string) {
	if n.step != nil {
		n.step(step)
	}
}
