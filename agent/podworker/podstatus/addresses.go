package podstatus

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// addresses sets the node's addresses and the pod's: at most one of each
// family, the node's primary family first. A pod without a ready sandbox keeps its
// previous addresses, if it has a sandbox.
func (g *generator) addresses(s *v1.PodStatus) {
	host := onePerFamily(g.HostIPs, g.HostIPs)
	s.HostIP, s.HostIPs = g.old.HostIP, g.old.HostIPs
	if len(host) > 0 {
		s.HostIP, s.HostIPs = host[0], nil
		for _, ip := range host {
			s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
		}
	}
	newest := g.Observed.Sandbox()
	var ips []string
	switch {
	case g.Pod.Spec.HostNetwork && len(host) > 0:
		ips = host
	case g.Pod.Spec.HostNetwork, newest != nil && !g.anySandboxReady():
		s.PodIP, s.PodIPs = g.old.PodIP, g.old.PodIPs
	case newest != nil && newest.Ready:
		ips = onePerFamily(newest.IPs, g.HostIPs)
	}
	if len(ips) > 0 {
		s.PodIP = ips[0]
	}
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

func (g *generator) anySandboxReady() bool {
	return slices.ContainsFunc(g.Observed.Sandboxes, func(s container.Sandbox) bool { return s.Ready })
}

// onePerFamily returns the first address of each family in list. The family of the first
// valid address in primary comes first, or IPv4 if primary has none. It omits invalid
// addresses.
func onePerFamily(list, primary []string) []string {
	v6First := false
	for _, text := range primary {
		if addr, err := netip.ParseAddr(text); err == nil {
			v6First = addr.Unmap().Is6()
			break
		}
	}
	var picked [2]string
	for _, text := range list {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		addr = addr.Unmap().WithZone("")
		slot := 0
		if addr.Is6() != v6First {
			slot = 1
		}
		if picked[slot] == "" {
			picked[slot] = addr.String()
		}
	}
	return slices.DeleteFunc(picked[:], func(ip string) bool { return ip == "" })
}
