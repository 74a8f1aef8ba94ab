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
	var ips []netip.Addr
	for _, ip := range asked {
		if ip = ip.Unmap(); ip.IsValid() && !ip.IsUnspecified() {
			ips = append(ips, ip)
		}
	}
	return ips
}

func firstSpecified(asked []netip.Addr) bool {
	return len(asked) > 0 && asked[0].IsValid() && !asked[0].Unmap().IsUnspecified()
}

// choose returns the node's address if none is configured: the name itself if it is
// an address, or else the source address of the default route. IPv4 is preferred unless
// --node-ip is ::.
func choose(in *Inputs) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(in.Config.NodeName); err == nil {
		return ip.Unmap(), true
	}
	wantV4 := len(in.Config.NodeIPs) == 0 || in.Config.NodeIPs[0].Unmap().Is4()
	return preferred(in.DefaultIPs, wantV4)
}

// preferred returns the first valid address of the preferred family, or else the
// first valid one.
func preferred(ips []netip.Addr, wantV4 bool) (netip.Addr, bool) {
	var best netip.Addr
	for _, ip := range ips {
		if ip = ip.Unmap(); !ip.IsValid() {
			continue
		}
		if ip.Is4() == wantV4 {
			return ip, true
		}
		if !best.IsValid() {
			best = ip
		}
	}
	return best, best.IsValid()
}

func checkNodeIPs(ips, host []netip.Addr) error {
	for _, ip := range ips {
		if err := checkNodeIP(ip, host); err != nil {
			return fmt.Errorf("node IP %s: %w", ip, err)
		}
	}
	return nil
}

// checkNodeIP returns why others could not reach the host by an address, nil if
// they could (validateNodeIP in pkg/kubelet/kubelet_node_status.go).
func checkNodeIP(ip netip.Addr, host []netip.Addr) error {
	switch {
	case !ip.IsValid() || ip.IsUnspecified():
		return fmt.Errorf("is unspecified")
	case ip.IsLoopback():
		return fmt.Errorf("is a loopback address")
	case ip.IsMulticast():
		return fmt.Errorf("is a multicast address")
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("is a link-local address")
	case !slices.ContainsFunc(host, func(own netip.Addr) bool { return own.Unmap().WithZone("") == ip }):
		return fmt.Errorf("is not on any interface of the host")
	}
	return nil
}
