package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
)

// errUnassigned means that the pod networks of the node are neither configured nor
// assigned.
var errUnassigned = errors.New("the node has no podCIDR: start kube-controller-manager with --allocate-node-cidrs=true and --cluster-cidr, or set network.podCIDRs of TinyletConfiguration")

// errUnanswered means that a request for the Node failed.
var errUnanswered = errors.New("read the node's podCIDRs from the API server")

// invalidNetworks is any error of networks, except for that of Config.UplinkAddresses. Most
// of these end with an event, a call of Assigned or a change of the links, so that the
// backoff may become long (wait).
type invalidNetworks struct{ error }

func (d invalidNetworks) Unwrap() error { return d.error }

// fallbackDelay is how long the API server may not answer before a node that never had
// podCIDRs uses Config.Fallback.
const fallbackDelay = time.Minute

// parsePodCIDRs parses podCIDRs, which may be invalid.
func parsePodCIDRs(texts []string) (networks []netip.Prefix, err error) {
	c := cni.Default()
	families := map[bool]bool{}
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("podCIDR %.60q of the Node is not a network such as 10.244.1.0/24", text)
		}
		if families[prefix.Addr().Is4()] {
			return nil, fmt.Errorf("podCIDRs %.120q of the Node have the same family: a node takes one of IPv4, one of IPv6, or one of each", texts)
		}
		families[prefix.Addr().Is4()] = true
		networks = append(networks, prefix.Masked())
		c.Ranges = append(c.Ranges, ipam.Range{Prefix: prefix.Masked()})
	}
	if _, err := cni.Conflist(c, networkName); err != nil {
		return nil, fmt.Errorf("podCIDRs %.120q of the Node: %w", texts, err)
	}
	return networks, nil
}

// networks returns the pod networks of the node: the configured ones, those of the
// API server, or, until it has assigned some, those of the last configuration. If
// the networks are unusable or unknown, it returns an error and the networks of the
// last configuration, or those of Fallback. The networks of the last configuration are
// returned even if they contain an address of the uplink, because pods may use them.
func (n *Network) networks(ctx context.Context, was cni.Config) ([]netip.Prefix, error) {
	networks, err := n.chosenNetworks(ctx, was)
	if len(networks) > 0 {
		overlap, failed := n.checkUplinkOverlap(networks)
		if failed != nil {
			return subnets(was.Ranges), failed
		}
		if overlap != nil {
			networks, err = nil, errors.Join(err, overlap)
		}
	}
	if len(networks) == 0 {
		networks = subnets(was.Ranges)
	}
	if err != nil {
		err = invalidNetworks{err}
	}
	return networks, err
}

// chosenNetworks returns the chosen networks, which may contain addresses that they must
// not contain.
func (n *Network) chosenNetworks(ctx context.Context, was cni.Config) ([]netip.Prefix, error) {
	if n.cfg.Networks != nil {
		return n.cfg.Networks, nil
	}
	if assigned, doubt := n.assignedNetworks(); len(assigned) > 0 || doubt != nil {
		return assigned, doubt
	}
	if len(was.Ranges) > 0 && !n.isFallback(was) {
		return subnets(was.Ranges), nil
	}
	// A controller assigns them shortly after the node was created. The node is not
	// watched, so it has to be read again.
	began := time.Now()
	if err := n.cfg.Refresh(ctx); err != nil {
		err = fmt.Errorf("%w: %w", errUnanswered, err)
		if n.unansweredSince.IsZero() {
			n.unansweredSince = began
		}
		if n.isFallback(was) || len(n.cfg.Fallback) > 0 && n.untilFallback() <= 0 {
			return n.cfg.Fallback, fmt.Errorf("%w; until then pods get addresses of %v", err, n.cfg.Fallback)
		}
		return nil, err
	}
	n.unansweredSince = time.Time{}
	assigned, doubt := n.assignedNetworks()
	if len(assigned) == 0 && doubt == nil {
		doubt = errUnassigned
	}
	return assigned, doubt
}

// untilFallback returns how long the API server may still not answer before Fallback is used.
func (n *Network) untilFallback() time.Duration { return fallbackDelay - time.Since(n.unansweredSince) }

// isFallback reports whether a configuration has the networks of Fallback, which the API
// server has not assigned, or not yet.
func (n *Network) isFallback(c cni.Config) bool {
	return len(n.cfg.Fallback) > 0 && slices.Equal(subnets(c.Ranges), n.cfg.Fallback)
}

// checkUplinkOverlap returns an overlap if a pod network contains an address of the node on
// its uplink, of its routers or of the API server. With such a network on the bridge, the node
// would lose its connection to them. failed is the error of UplinkAddresses.
func (n *Network) checkUplinkOverlap(networks []netip.Prefix) (overlap, failed error) {
	world, err := n.cfg.UplinkAddresses()
	if err != nil {
		return nil, err
	}
	if len(world) > 0 { // without any, the link may be back soon
		n.uplinkAddresses = world
	}
	reached := n.uplinkAddresses
	if n.cfg.ServerAddresses != nil {
		reached = slices.Concat(reached, n.cfg.ServerAddresses())
	}
	for _, p := range networks {
		if i := slices.IndexFunc(reached, p.Contains); i >= 0 {
			return fmt.Errorf("pod network %v contains %v, an address of the node, of its router or of the API server: choose another pod network (network.podCIDRs of TinyletConfiguration, or in a cluster --cluster-cidr of kube-controller-manager)", p, reached[i]), nil
		}
	}
	return nil, nil
}
