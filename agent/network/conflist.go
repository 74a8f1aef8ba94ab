package network

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/net/cni"
)

// networkName is that of the network in the runtime's configuration.
const networkName = "tinylet"

// hostOnly is what a pod hears in the mode host.
const hostOnly = "pods of this node have the host's network: set hostNetwork: true in the pod's spec, or another network.mode in TinyletConfiguration"

// recall reads a configuration that this package has written; ours is false
// for any other. What cannot be read is ours by the name of its file, and says
// nothing: a disk has torn it, or another version has written it.
func recall(data []byte) (c cni.Config, ours bool) {
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

// settled is what the settings alone say.
func settled(s config.Network) cni.Config {
	c := cni.Default()
	c.Bridge, c.MTU = s.Bridge, int(s.MTU)
	return c
}

// wanted is the configuration for the networks of the node's pods.
func wanted(s config.Network, networks, direct []netip.Prefix) cni.Config {
	c := settled(s)
	c.Masquerade, c.Direct = true, direct
	for _, p := range networks {
		c.Ranges = append(c.Ranges, cni.Range{Subnet: p})
	}
	return c
}

// refusing is the configuration for a node whose pods have the host's network.
func refusing(s config.Network) cni.Config {
	c := settled(s)
	c.Refuse = hostOnly
	return c
}

// former are the networks of an earlier configuration that are none of the
// present ones.
func former(was cni.Config, now []cni.Range) (kept []cni.Range) {
	for _, r := range slices.Concat(was.Ranges, was.Kept) {
		is := func(other cni.Range) bool { return other.Subnet == r.Subnet }
		if !slices.ContainsFunc(now, is) && !slices.ContainsFunc(kept, is) {
			kept = append(kept, r)
		}
	}
	return kept
}

func subnets(ranges []cni.Range) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range ranges {
		all = append(all, r.Subnet)
	}
	return all
}

func same(a, b cni.Config) bool { return reflect.DeepEqual(a, b) }
