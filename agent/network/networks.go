package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tinylet/tinylet/net/cni"
)

// errUnassigned says that nobody has told which addresses the pods may have.
var errUnassigned = errors.New("the node has no podCIDR: start kube-controller-manager with --allocate-node-cidrs=true and --cluster-cidr, or set network.podCIDRs of TinyletConfiguration")

// errUnanswered says that the API server was asked, and did not tell.
var errUnanswered = errors.New("ask the API server for the node's podCIDRs")

// doubt is what is wrong with the networks themselves. What ends it is told:
// by the API server, whoever speaks to it, or by a change of the links.
type doubt struct{ error }

func (d doubt) Unwrap() error { return d.error }

// Assigned takes the networks that the API server has for this node's pods
// (podCIDRs of the Node). None changes nothing; nor do texts that cannot be
// used, but for Problem.
func (n *Network) Assigned(texts []string) {
	if len(texts) == 0 {
		return
	}
	networks, err := usable(texts)
	n.mu.Lock()
	changed := fmt.Sprint(err) != fmt.Sprint(n.doubt)
	n.doubt = err
	if err == nil && !slices.Equal(networks, n.assigned) {
		n.assigned, changed = networks, true
	}
	n.mu.Unlock()
	if changed {
		n.Look()
	}
}

// usable are the networks of texts that are not of this node's making.
func usable(texts []string) (networks []netip.Prefix, err error) {
	c := cni.Default()
	families := map[bool]bool{}
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("podCIDR %.60q of the Node is no network such as 10.244.1.0/24: correct it", text)
		}
		if families[prefix.Addr().Is4()] {
			return nil, fmt.Errorf("podCIDRs %.120q of the Node are of one family: a node takes one of IPv4, one of IPv6, or one of each", texts)
		}
		families[prefix.Addr().Is4()] = true
		networks = append(networks, prefix.Masked())
		c.Ranges = append(c.Ranges, cni.Range{Subnet: prefix.Masked()})
	}
	if _, err := cni.Conflist(c, networkName, ""); err != nil {
		return nil, fmt.Errorf("podCIDRs %.120q of the Node: %w", texts, err)
	}
	return networks, nil
}

// networks are those of the node's pods: the configured ones, those of the API
// server, or, as long as it has told none, those of the last time. Where what
// was told is of no use, there is a doubt, and with it those of the last time.
func (n *Network) networks(ctx context.Context, was cni.Config) ([]netip.Prefix, error) {
	networks, err := n.meant(ctx, was)
	if len(networks) > 0 {
		if overlap := n.apart(networks); overlap != nil {
			networks, err = nil, errors.Join(err, overlap)
		}
	}
	if len(networks) == 0 {
		networks = subnets(was.Ranges)
	}
	if err != nil {
		err = doubt{err}
	}
	return networks, err
}

// meant are the networks that somebody has chosen.
func (n *Network) meant(ctx context.Context, was cni.Config) ([]netip.Prefix, error) {
	if n.cfg.Networks != nil {
		return n.cfg.Networks, nil
	}
	if assigned, doubt := n.told(); len(assigned) > 0 || doubt != nil {
		return assigned, doubt
	}
	if len(was.Ranges) > 0 {
		return subnets(was.Ranges), nil
	}
	// A controller assigns them a moment after the node was made, and nothing
	// tells of it: the node is not watched.
	if n.cfg.Refresh != nil {
		if err := n.cfg.Refresh(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnanswered, err)
		}
	}
	assigned, doubt := n.told()
	if len(assigned) == 0 && doubt == nil {
		doubt = errUnassigned
	}
	return assigned, doubt
}

func (n *Network) told() ([]netip.Prefix, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.assigned, n.doubt
}

// apart says whether pods' networks have the addresses by which the node
// reaches the world. With the bridge in them it would not any more.
func (n *Network) apart(networks []netip.Prefix) error {
	if n.cfg.World == nil {
		return nil
	}
	world, err := n.cfg.World()
	if err != nil {
		return err
	}
	if len(world) > 0 { // else the link may be back at once
		n.world = world
	}
	for _, p := range networks {
		if i := slices.IndexFunc(n.world, p.Contains); i >= 0 {
			return fmt.Errorf("the pods' network %v has %v, an address of the node or of its router: give the pods another (network.podCIDRs of TinyletConfiguration, or in a cluster --cluster-cidr of kube-controller-manager)", p, n.world[i])
		}
	}
	return nil
}
