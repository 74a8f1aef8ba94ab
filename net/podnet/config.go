package podnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Config is what all pods of a node share.
type Config struct {
	// Bridge is the name of the interface that the pods are attached to.
	Bridge string
	// MTU of the pods' interfaces in bytes; 0 is that of the uplink when the
	// pod is set up.
	MTU int
	// Ranges are where addresses come from, one of each: at most one of IPv4
	// and one of IPv6. Without any, networks can be taken down alone.
	Ranges []ipam.Range
	// Kept are networks that pods still have addresses of, and that give no
	// more.
	Kept []ipam.Range
	// Masquerade gives what pods send beyond the node the node's address.
	Masquerade bool
	// Direct are destinations for which it does not.
	Direct []netip.Prefix
	// Hairpin has the bridge send back to a pod what it sends to itself.
	Hairpin bool
	// Promiscuous has the bridge itself do that.
	Promiscuous bool
	// Reserved are ports of TCP of the host that no pod has: others listen there,
	// or will.
	Reserved []uint16
	// StateDir holds the leases. They do not outlive the boot, so it may be in
	// a tmpfs.
	StateDir string
}

// complete checks the configuration and fills in what follows.
func (c Config) complete() (Config, error) {
	if err := link.ValidName(c.Bridge); err != nil {
		return c, err
	}
	if c.StateDir == "" {
		return c, errors.New("there is no folder for leases")
	}
	var err error
	if c.Ranges, err = completed(c.Ranges); err != nil {
		return c, err
	}
	if c.Kept, err = completed(c.Kept); err != nil {
		return c, err
	}
	for i, r := range c.Ranges {
		for _, s := range c.Ranges[:i] {
			if r.Prefix.Addr().Is4() == s.Prefix.Addr().Is4() {
				return c, fmt.Errorf("%v and %v are of one family, and a pod has one address of each", s.Prefix, r.Prefix)
			}
		}
	}
	return c, nil
}

func completed(ranges []ipam.Range) ([]ipam.Range, error) {
	out := make([]ipam.Range, len(ranges))
	for i, r := range ranges {
		var err error
		if out[i], err = r.Complete(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// base is what the rules are made of.
func (c *Config) base() nft.Base {
	b := nft.Base{Bridge: c.Bridge, Direct: c.Direct, Masquerade: c.Masquerade}
	for _, ranges := range [][]ipam.Range{c.Ranges, c.Kept} {
		for _, r := range ranges {
			b.Pods = append(b.Pods, r.Prefix)
		}
	}
	return b
}

// bridge is what the bridge has to be like.
func (c *Config) bridge() link.Bridge {
	b := link.Bridge{Name: c.Bridge, MTU: c.MTU, Promiscuous: c.Promiscuous}
	for _, ranges := range [][]ipam.Range{c.Ranges, c.Kept} {
		for _, r := range ranges {
			b.Addresses = append(b.Addresses, netip.PrefixFrom(r.Gateway, r.Prefix.Bits()))
		}
	}
	return b
}

// families says which of IPv4 and IPv6 the pods have.
func (c *Config) families() (v4, v6 bool) {
	for _, r := range c.Ranges {
		v4, v6 = v4 || r.Prefix.Addr().Is4(), v6 || r.Prefix.Addr().Is6()
	}
	return v4, v6
}

// rangeOf is the range that an address is of.
func (c *Config) rangeOf(a netip.Addr) (ipam.Range, bool) {
	for _, ranges := range [][]ipam.Range{c.Ranges, c.Kept} {
		for _, r := range ranges {
			if r.Prefix.Contains(a) {
				return r, true
			}
		}
	}
	return ipam.Range{}, false
}
