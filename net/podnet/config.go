package podnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// config is the configuration that all pods of a node share: at most one range of IPv4
// and one of IPv6. A pod gets one address of each. Without a range no pod can be set up.
type config struct{ cni.Config }

// complete validates the configuration and sets defaults.
func (c config) complete() (config, error) {
	if err := link.ValidName(c.Bridge); err != nil {
		return c, err
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
				return c, fmt.Errorf("ranges %v and %v are of the same family, and a pod has one address of each", s.Prefix, r.Prefix)
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

// base returns the input of the shared rules.
func (c *config) base() nft.Base {
	b := nft.Base{Bridge: c.Bridge, Direct: c.Direct, Masquerade: c.Masquerade}
	for _, r := range c.allRanges() {
		b.Pods = append(b.Pods, r.Prefix)
	}
	return b
}

// bridge returns the desired state of the bridge. The kernel has an IPv6 address only once:
// if a former range has the same gateway, the shorter prefix contains both ranges.
func (c *config) bridge() link.Bridge {
	b := link.Bridge{Name: c.Bridge, MTU: c.MTU, Promiscuous: c.Promiscuous}
	for _, r := range c.allRanges() {
		a := netip.PrefixFrom(r.Gateway, r.Prefix.Bits())
		i := slices.IndexFunc(b.Addresses, func(other netip.Prefix) bool { return a.Addr().Is6() && other.Addr() == a.Addr() })
		switch {
		case i < 0:
			b.Addresses = append(b.Addresses, a)
		case a.Bits() < b.Addresses[i].Bits():
			b.Addresses[i] = a
		}
	}
	return b
}

// families reports which of IPv4 and IPv6 the pods have.
func (c *config) families() (v4, v6 bool) {
	for _, r := range c.Ranges {
		v4, v6 = v4 || r.Prefix.Addr().Is4(), v6 || r.Prefix.Addr().Is6()
	}
	return v4, v6
}

// rangeOf returns the range that contains an address.
func (c *config) rangeOf(a netip.Addr) (ipam.Range, bool) {
	for _, r := range c.allRanges() {
		if r.Prefix.Contains(a) {
			return r, true
		}
	}
	return ipam.Range{}, false
}

func (c *config) allRanges() []ipam.Range { return slices.Concat(c.Ranges, c.Kept) }
