package routes

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxOf bounds the networks and the addresses of one node.
const maxOf = 16

// peer is another node: the networks of its pods, its addresses in the order of the
// Node object, and the creation time of the object, in seconds since 1970, as set
// by the API server.
type peer struct {
	networks  []netip.Prefix
	addresses []netip.Addr
	since     int64
}

// keep returns the used fields of a Node. ok is false for this node, whose name is own,
// and for a node without a pod network or an address.
func keep(o runtime.Object, own string) (peer, bool) {
	n, ok := o.(*v1.Node)
	if !ok || n.Name == own {
		return peer{}, false
	}
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 {
		cidrs = []string{n.Spec.PodCIDR}
	}
	p := peer{since: n.CreationTimestamp.Unix()}
	for _, text := range cidrs[:min(len(cidrs), maxOf)] {
		if network, err := netip.ParsePrefix(text); err == nil && !network.Addr().Is4In6() {
			p.networks = append(p.networks, network.Masked())
		}
	}
	for _, a := range n.Status.Addresses {
		if a.Type != v1.NodeInternalIP || len(p.addresses) == maxOf {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Zone() == "" {
			p.addresses = append(p.addresses, ip.Unmap())
		}
	}
	return p, len(p.networks) > 0 && len(p.addresses) > 0
}

func same(a, b peer) bool {
	return slices.Equal(a.networks, b.networks) && slices.Equal(a.addresses, b.addresses) && a.since == b.since
}
