package proxy

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/net/nft"
)

// FuzzObjects lets the server send arbitrary Services and EndpointSlices as JSON
// lists. The table must accept the result, because one rejected Service would block
// all others.
func FuzzObjects(f *testing.F) {
	add := func(svcs []*v1.Service, slices []*discoveryv1.EndpointSlice) {
		a, err := json.Marshal(svcs)
		if err != nil {
			f.Fatal(err)
		}
		b, err := json.Marshal(slices)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a, b)
	}
	local := v1.ServiceInternalTrafficPolicyLocal
	add([]*v1.Service{web(nil)}, []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 local ready serving", "fd00::2 serving terminating")})
	add([]*v1.Service{
		web(func(s *v1.Service) {
			s.Spec.ExternalIPs, s.Spec.Ports[0].NodePort = []string{"192.168.1.10", "::ffff:192.168.1.20", "fe80::1%eth0"}, 10250
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = v1.ServiceAffinityClientIP, seconds(1<<30)
			s.Spec.InternalTrafficPolicy, s.Spec.ExternalTrafficPolicy = &local, v1.ServiceExternalTrafficPolicyLocal
		}),
		web(func(s *v1.Service) {
			s.Name, s.Spec.Type = "web:http", v1.ServiceTypeLoadBalancer
			s.Spec.Ports[0].Name, s.Spec.LoadBalancerSourceRanges = "", []string{"0.0.0.0/0", "x"}
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "198.51.100.1"}}
		}),
	}, nil)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var svcs []v1.Service
		var eps []discoveryv1.EndpointSlice
		_ = json.Unmarshal(first, &svcs) // what could be read is there
		_ = json.Unmarshal(second, &eps)
		all, of := map[listwatch.Key]service{}, map[listwatch.Key]slice{}
		for i := range svcs {
			if s, ok := keepService(&svcs[i]); ok {
				all[listwatch.Key{Namespace: svcs[i].Namespace, Name: svcs[i].Name}] = s
			}
		}
		for i := range eps {
			if s, ok := keepSlice(&eps[i], "own"); ok {
				of[listwatch.Key{Namespace: eps[i].Namespace, Name: eps[i].Name}] = s
			}
		}
		a := thisNode()
		out, _ := convert(all, of, "pods0", a)
		type id struct {
			name     string
			protocol nft.Protocol
		}
		seen := map[id]bool{}
		for i := range out {
			s := &out[i]
			if err := s.Check(); err != nil {
				t.Errorf("%+v: %v", s, err)
			}
			if seen[id{s.Name, s.Protocol}] {
				t.Errorf("%q is there twice", s.Name)
			}
			seen[id{s.Name, s.Protocol}] = true
			for _, ip := range slices.Concat(s.IPs, s.External) {
				own := s.Protocol == nft.TCP && slices.Contains(a.ports, s.Port) && slices.Contains(a.own, ip)
				server := slices.Contains(a.servers, ip) && s.Name != "default/kubernetes"
				if own || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || slices.Contains(a.routers, ip) ||
					server && slices.Contains(s.External, ip) {
					t.Errorf("%q has %v", s.Name, netip.AddrPortFrom(ip, s.Port))
				}
			}
			if s.Protocol == nft.TCP && slices.Contains(a.ports, s.NodePort) {
				t.Errorf("%q has the node's port %d", s.Name, s.NodePort)
			}
		}
	})
}
