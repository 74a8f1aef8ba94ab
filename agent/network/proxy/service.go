package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/net/nft"
)

// proxyName is the label of Services that another proxy implements
// (apis.LabelServiceProxyName of k8s.io/kubernetes/pkg/proxy).
const proxyName = "service.kubernetes.io/service-proxy-name"

// The maximum and the default timeout of a session affinity, both as in the API server.
const (
	maxAffinity     = 24 * time.Hour
	defaultAffinity = 3 * time.Hour
)

// service are the used fields of a Service.
type service struct {
	ips, external                []netip.Addr
	ports                        []port
	externalLocal, internalLocal bool
	affinity                     time.Duration
}

// port is one port of a Service.
type port struct {
	name           string
	protocol       nft.Protocol
	port, nodePort uint16
}

// keepService returns the used fields of a Service. ok is false for a Service
// without a cluster IP or a valid port.
func keepService(o runtime.Object) (service, bool) {
	svc, ok := o.(*v1.Service)
	if !ok || svc.Spec.Type == v1.ServiceTypeExternalName {
		return service{}, false
	}
	if _, another := svc.Labels[proxyName]; another {
		return service{}, false
	}
	texts := svc.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{svc.Spec.ClusterIP}
	}
	s := service{ips: addresses(texts), affinity: affinity(&svc.Spec)}
	if len(s.ips) == 0 {
		return service{}, false
	}
	s.external = append(addresses(svc.Spec.ExternalIPs), loadBalancerIPs(svc)...)
	s.externalLocal = svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
	s.internalLocal = ptr.Deref(svc.Spec.InternalTrafficPolicy, "") == v1.ServiceInternalTrafficPolicyLocal
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		protocol, known := protocolOf(p.Protocol)
		number, valid := portOf(p.Port)
		if !known || !valid {
			continue
		}
		nodePort, _ := portOf(p.NodePort)
		s.ports = append(s.ports, port{p.Name, protocol, number, nodePort})
	}
	return s, len(s.ports) > 0
}

func sameService(a, b service) bool {
	return slices.Equal(a.ips, b.ips) && slices.Equal(a.external, b.external) && slices.Equal(a.ports, b.ports) &&
		a.externalLocal == b.externalLocal && a.internalLocal == b.internalLocal && a.affinity == b.affinity
}

// loadBalancerIPs returns the addresses of load balancers that this node may serve itself.
// With LoadBalancerSourceRanges it returns none, because the load balancer must
// filter the packets.
func loadBalancerIPs(svc *v1.Service) []netip.Addr {
	if svc.Spec.Type != v1.ServiceTypeLoadBalancer {
		return nil
	}
	var texts []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IPMode == nil || *in.IPMode == v1.LoadBalancerIPModeVIP {
			texts = append(texts, in.IP)
		}
	}
	return slices.DeleteFunc(addresses(texts), func(a netip.Addr) bool { return !open(svc.Spec.LoadBalancerSourceRanges, a) })
}

// open reports whether all sources of an address's family are allowed.
func open(ranges []string, a netip.Addr) bool {
	if len(ranges) == 0 {
		return true
	}
	return slices.ContainsFunc(ranges, func(text string) bool {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		return err == nil && p.Bits() == 0 && p.Addr().Is4() == a.Is4()
	})
}

func affinity(spec *v1.ServiceSpec) time.Duration {
	if spec.SessionAffinity != v1.ServiceAffinityClientIP {
		return 0
	}
	c := spec.SessionAffinityConfig
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil || *c.ClientIP.TimeoutSeconds <= 0 {
		return defaultAffinity
	}
	return min(time.Duration(*c.ClientIP.TimeoutSeconds)*time.Second, maxAffinity)
}

// addresses parses the addresses that packets can be redirected from or to. The API
// server rejects others in Services and EndpointSlices, but not in the addresses of
// load balancers.
func addresses(texts []string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		if a, ok := address(text); ok && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	a = a.Unmap()
	return a, !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}

func protocolOf(p v1.Protocol) (nft.Protocol, bool) {
	switch p {
	case v1.ProtocolTCP, "":
		return nft.TCP, true
	case v1.ProtocolUDP:
		return nft.UDP, true
	case v1.ProtocolSCTP:
		return nft.SCTP, true
	}
	return 0, false
}

func portOf(n int32) (uint16, bool) {
	if n <= 0 || n > 65535 {
		return 0, false
	}
	return uint16(n), true
}
