package network

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
)

// networkName is the name of the network in the conflist.
const networkName = "tinylet"

// hostOnly is the error of the plugin for a pod in mode host.
const hostOnly = "pods on this node use the host's network: set hostNetwork: true in the pod spec, or another network.mode in TinyletConfiguration"

// parseOwn parses a conflist that this package has written. ours is false for any
// other. A file that cannot be parsed is ours because of its name, and c is then
// zero: the disk may have torn it, or another version may have written it.
func parseOwn(data []byte) (c cni.Config, ours bool) {
	if data == nil {
		return cni.Config{}, false
	}
	c, err := cni.ParseConflist(data)
	switch {
	case errors.Is(err, cni.ErrForeign):
		return cni.Config{}, false
	case err != nil:
		return cni.Config{}, true
	case c.Name != networkName:
		return cni.Config{}, false
	}
	return c, true
}

// baseConfig returns the configuration of the settings alone, without networks.
func baseConfig(s config.Network) cni.Config {
	c := cni.Default()
	c.Bridge, c.MTU = s.Bridge, int(s.MTU)
	return c
}

// desiredConfig returns the configuration for the networks of the node's pods.
func desiredConfig(s config.Network, networks, direct []netip.Prefix) cni.Config {
	c := baseConfig(s)
	c.Masquerade, c.Direct = true, direct
	for _, p := range networks {
		c.Ranges = append(c.Ranges, ipam.Range{Prefix: p})
	}
	return c
}

// hostOnlyConfig returns the configuration for a node whose pods use the host's network.
func hostOnlyConfig(s config.Network) cni.Config {
	c := baseConfig(s)
	c.Refuse = hostOnly
	return c
}

// formerRanges returns the networks of an earlier configuration that are not in now.
func formerRanges(was cni.Config, now []ipam.Range) (kept []ipam.Range) {
	for _, r := range slices.Concat(was.Ranges, was.Kept) {
		is := func(other ipam.Range) bool { return other.Prefix == r.Prefix }
		if !slices.ContainsFunc(now, is) && !slices.ContainsFunc(kept, is) {
			kept = append(kept, r)
		}
	}
	return kept
}

func subnets(ranges []ipam.Range) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range ranges {
		all = append(all, r.Prefix)
	}
	return all
}
