package nodestatus

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// addresses returns the addresses by which others reach the node: its internal
// addresses, the primary one first, and its hostname (NodeAddress in
// pkg/kubelet/nodestatus/setters.go). With an error it returns old.
func addresses(old []v1.NodeAddress, in *Inputs) ([]v1.NodeAddress, error) {
	name, asked := in.Config.NodeName, in.Config.NodeIPs
	ips := specified(asked)
	if err := checkNodeIPs(ips, in.HostIPs); err != nil {
		return old, err
	}
	if in.Config.CloudProvider == cloudExternal {
		if len(old) > 0 {
			return old, nil // set by the cloud provider
		}
		if len(asked) == 0 {
			return listed(name), nil // the cloud provider will set them
		}
	}
	if !firstSpecified(asked) {
		ip, ok := choose(in)
		if !ok {
			return old, fmt.Errorf("choose an address of node %q: there is no default route", name)
		}
		ips = []netip.Addr{ip}
	}
	return listed(name, ips...), nil
}

func listed(name string, ips ...netip.Addr) []v1.NodeAddress {
	var list []v1.NodeAddress
	for _, ip := range ips {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return append(list, v1.NodeAddress{Type: v1.NodeHostName, Address: name})
}

// specified returns the addresses of asked that are specific, not just a family.
func specified(asked []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(asked), netip.Addr.IsUnspecified)
}

func firstSpecified(asked []netip.Addr) bool {
	return len(asked) > 0 && !asked[0].IsUnspecified()
}

// choose returns the node's address if none is configured: the name itself if it is
// an address, or else the source address of a default route. IPv4 is preferred unless
// --node-ip is ::.
func choose(in *Inputs) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(in.Config.NodeName); err == nil {
		return ip.Unmap(), true
	}
	if len(in.DefaultIPs) == 0 {
		return netip.Addr{}, false
	}
	wantV4 := len(in.Config.NodeIPs) == 0 || in.Config.NodeIPs[0].Is4()
	i := slices.IndexFunc(in.DefaultIPs, func(ip netip.Addr) bool { return ip.Is4() == wantV4 })
	return in.DefaultIPs[max(i, 0)], true
}

// checkNodeIPs returns an error that names the first address that is not on the host
// (validateNodeIP in pkg/kubelet/kubelet_node_status.go). The configuration has no
// loopback, multicast or link-local addresses.
func checkNodeIPs(ips, host []netip.Addr) error {
	for _, ip := range ips {
		if !slices.Contains(host, ip) {
			return fmt.Errorf("node IP %s: is not on any interface of the host", ip)
		}
	}
	return nil
}
