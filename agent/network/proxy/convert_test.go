package proxy

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/net/nft"
)

// web returns a Service with one port, modified.
func web(change func(*v1.Service)) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

// ends returns a slice with the port http at 8080. An endpoint is, for example,
// 10.1.0.2 local ready serving terminating.
func ends(name string, all ...string) *discoveryv1.EndpointSlice {
	http, tcp, number := "http", v1.ProtocolTCP, int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Ports:      []discoveryv1.EndpointPort{{Name: &http, Protocol: &tcp, Port: &number}},
	}
	for _, text := range all {
		words := strings.Fields(text)
		has := func(word string) *bool { b := strings.Contains(text, word); return &b }
		node := "other"
		if *has("local") {
			node = "own"
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: words[:1], NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: has("ready"), Serving: has("serving"), Terminating: has("terminating")},
		})
	}
	return s
}

// short formats a rule in one line.
func short(s nft.Service) string {
	text := fmt.Sprintf("%s/%v %v:%d", s.Name, s.Protocol, s.IPs, s.Port)
	if len(s.External) > 0 {
		text += fmt.Sprintf(" external %v", s.External)
	}
	if s.NodePort != 0 {
		text += fmt.Sprintf(" node %d", s.NodePort)
	}
	if s.ExternalLocal {
		text += " externalLocal"
		if s.Bridge != "pods0" {
			text += " of no bridge"
		}
	}
	if s.InternalLocal {
		text += " internalLocal"
	}
	if s.Affinity != 0 {
		text += fmt.Sprintf(" sticky %v", s.Affinity)
	}
	text += fmt.Sprintf(" to %v", s.Endpoints)
	if s.LocalEndpoints != nil {
		text += fmt.Sprintf(" local %v", s.LocalEndpoints)
	}
	return text
}

func converted(svcs []*v1.Service, slices []*discoveryv1.EndpointSlice) []nft.Service {
	kept, of := map[listwatch.Key]service{}, map[listwatch.Key]slice{}
	for _, s := range svcs {
		if k, ok := keepService(s); ok {
			kept[listwatch.Key{Namespace: s.Namespace, Name: s.Name}] = k
		}
	}
	for _, s := range slices {
		if k, ok := keepSlice(s, "own"); ok {
			of[listwatch.Key{Namespace: s.Namespace, Name: s.Name}] = k
		}
	}
	out, _ := convert(kept, of, "pods0", apart{})
	return out
}

func seconds(n int32) *v1.SessionAffinityConfig {
	return &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &n}}
}

func TestServices(t *testing.T) {
	local := v1.ServiceInternalTrafficPolicyLocal
	vip, proxy := v1.LoadBalancerIPModeVIP, v1.LoadBalancerIPModeProxy
	balancer := func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeLoadBalancer
		s.Spec.Ports[0].NodePort = 30080
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{
			{IP: "198.51.100.1"}, {IP: "198.51.100.2", IPMode: &vip}, {IP: "198.51.100.3", IPMode: &proxy}, {Hostname: "lb"}, {IP: "127.0.0.1"}, {IP: "2001:db8::1"},
		}
	}
	const one = "10.1.0.2 local ready serving"
	for _, row := range []struct {
		name   string
		change func(*v1.Service)
		want   string
	}{
		{"plain", nil, "shop/web:http/TCP [10.96.0.1]:80 to [10.1.0.2:8080]"},
		{"headless", func(s *v1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }, ""},
		{"no address yet", func(s *v1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil }, ""},
		{"another name", func(s *v1.Service) { s.Spec.Type, s.Spec.ExternalName = v1.ServiceTypeExternalName, "x" }, ""},
		{"another proxy", func(s *v1.Service) { s.Labels = map[string]string{proxyName: ""} }, ""},
		{"old server", func(s *v1.Service) { s.Spec.ClusterIPs = nil }, "shop/web:http/TCP [10.96.0.1]:80 to [10.1.0.2:8080]"},
		{"two families", func(s *v1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.1", "fd00:96::1"} }, "shop/web:http/TCP [10.96.0.1 fd00:96::1]:80 to [10.1.0.2:8080]"},
		{"node port", func(s *v1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = v1.ServiceTypeNodePort, 30080 }, "shop/web:http/TCP [10.96.0.1]:80 node 30080 to [10.1.0.2:8080]"},
		{"external", func(s *v1.Service) {
			s.Spec.ExternalIPs = []string{"198.51.100.9", "127.0.0.1", "0.0.0.0", "fe80::1", "224.0.0.1", "x", "198.51.100.9"}
		}, "shop/web:http/TCP [10.96.0.1]:80 external [198.51.100.9] to [10.1.0.2:8080]"},
		{"load balancer", balancer, "shop/web:http/TCP [10.96.0.1]:80 external [198.51.100.1 198.51.100.2 2001:db8::1] node 30080 to [10.1.0.2:8080]"},
		{"of some", func(s *v1.Service) { balancer(s); s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", " ::/0"} },
			"shop/web:http/TCP [10.96.0.1]:80 external [2001:db8::1] node 30080 to [10.1.0.2:8080]"},
		{"no load balancer", func(s *v1.Service) { balancer(s); s.Spec.Type = v1.ServiceTypeNodePort }, "shop/web:http/TCP [10.96.0.1]:80 node 30080 to [10.1.0.2:8080]"},
		{"external local", func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal },
			"shop/web:http/TCP [10.96.0.1]:80 externalLocal to [10.1.0.2:8080] local [10.1.0.2:8080]"},
		{"internal local", func(s *v1.Service) { s.Spec.InternalTrafficPolicy = &local }, "shop/web:http/TCP [10.96.0.1]:80 internalLocal to [10.1.0.2:8080] local [10.1.0.2:8080]"},
		{"sticky", func(s *v1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = v1.ServiceAffinityClientIP, seconds(60)
		}, "shop/web:http/TCP [10.96.0.1]:80 sticky 1m0s to [10.1.0.2:8080]"},
		{"sticky for ever", func(s *v1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = v1.ServiceAffinityClientIP, seconds(1<<30)
		}, "shop/web:http/TCP [10.96.0.1]:80 sticky 24h0m0s to [10.1.0.2:8080]"},
		{"sticky as usual", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }, "shop/web:http/TCP [10.96.0.1]:80 sticky 3h0m0s to [10.1.0.2:8080]"},
		{"ports", func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports,
				v1.ServicePort{Name: "http", Protocol: v1.ProtocolUDP, Port: 80}, v1.ServicePort{Name: "http", Port: 81}, v1.ServicePort{Name: "s", Protocol: v1.ProtocolSCTP, Port: 9},
				v1.ServicePort{Name: "x", Protocol: "QUIC", Port: 9}, v1.ServicePort{Name: "none"}, v1.ServicePort{Name: "many", Port: 65536})
		}, "shop/web:http/TCP [10.96.0.1]:80 to [10.1.0.2:8080]\nshop/web:http/UDP [10.96.0.1]:80 to []\nshop/web:s/SCTP [10.96.0.1]:9 to []"},
		{"no port of it", func(s *v1.Service) { s.Spec.Ports[0].Name = "" }, "shop/web/TCP [10.96.0.1]:80 to []"},
	} {
		var got []string
		for _, s := range converted([]*v1.Service{web(row.change)}, []*discoveryv1.EndpointSlice{ends("a", one)}) {
			got = append(got, short(s))
		}
		if text := strings.Join(got, "\n"); text != row.want {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, text, row.want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, row := range []struct {
		name   string
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		{"none", nil, "to []"},
		{"ready", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.3 ready serving", "10.1.0.2 local ready serving", "10.1.0.4 serving")}, "to [10.1.0.2:8080 10.1.0.3:8080] local [10.1.0.2:8080]"},
		{"two slices", []*discoveryv1.EndpointSlice{ends("b", "10.1.0.3 ready serving"), ends("a", "10.1.0.2 ready serving"), ends("c", "fd00::2 local ready serving")},
			"to [10.1.0.2:8080 10.1.0.3:8080 [fd00::2]:8080] local [[fd00::2]:8080]"},
		{"all leave", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 local serving terminating", "10.1.0.3 serving terminating", "10.1.0.4 terminating")},
			"to [10.1.0.2:8080 10.1.0.3:8080] local [10.1.0.2:8080]"},
		{"the local one leaves", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 local serving terminating", "10.1.0.3 ready serving")}, "to [10.1.0.3:8080] local [10.1.0.2:8080]"},
		{"one family leaves", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 serving terminating"), ends("b", "fd00::2 ready serving")}, "to [10.1.0.2:8080 [fd00::2]:8080]"},
		{"an address again", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 ready serving"), ends("b", "10.1.0.2 serving terminating")}, "to [10.1.0.2:8080]"},
		{"an address again, sorted", []*discoveryv1.EndpointSlice{ends("b", "10.1.0.2 ready serving", "10.1.0.3 ready serving"), ends("a", "10.1.0.2 serving terminating")}, "to [10.1.0.2:8080 10.1.0.3:8080]"},
		{"published while it ends", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 ready serving terminating", "10.1.0.3 serving terminating")}, "to [10.1.0.2:8080]"},
		{"published before it answers", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 ready", "10.1.0.3")}, "to [10.1.0.2:8080]"},
		{"ports of one name", []*discoveryv1.EndpointSlice{ends("a", "10.1.0.2 ready"), func() *discoveryv1.EndpointSlice {
			s, other := ends("b", "10.1.0.3 ready"), int32(9090)
			s.Ports[0].Port = &other
			return s
		}()}, "to [10.1.0.2:8080 10.1.0.3:9090]"},
		{"no addresses", []*discoveryv1.EndpointSlice{ends("a", "127.0.0.1 ready", "::1 ready", "0.0.0.0 ready", "fe80::1 ready", "example.com ready", "224.0.0.1 ready")}, "to []"},
		{"nothing said", []*discoveryv1.EndpointSlice{func() *discoveryv1.EndpointSlice {
			s := ends("a")
			s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.2"}}, {}}
			s.Ports[0].Protocol = nil
			return s
		}()}, "to [10.1.0.2:8080]"},
		{"no ports", []*discoveryv1.EndpointSlice{func() *discoveryv1.EndpointSlice {
			s := ends("a", "10.1.0.2 ready")
			zero := int32(0)
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: s.Ports[0].Name}, discoveryv1.EndpointPort{Port: s.Ports[0].Port}, discoveryv1.EndpointPort{Name: s.Ports[0].Name, Port: &zero})[1:]
			return s
		}()}, "to []"},
		{"of nobody", []*discoveryv1.EndpointSlice{func() *discoveryv1.EndpointSlice {
			s := ends("a", "10.1.0.2 ready")
			s.Labels = nil
			return s
		}()}, "to []"},
		{"of another namespace", []*discoveryv1.EndpointSlice{func() *discoveryv1.EndpointSlice {
			s := ends("a", "10.1.0.2 ready")
			s.Namespace = "other"
			return s
		}()}, "to []"},
	} {
		svc := web(func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal })
		got := short(converted([]*v1.Service{svc}, row.slices)[0])
		if _, text, _ := strings.Cut(got, "externalLocal "); text != row.want {
			t.Errorf("%s: %s, want %s", row.name, text, row.want)
		}
	}
}

func TestKeptIsCompared(t *testing.T) {
	same, _ := keepService(web(nil))
	for name, change := range map[string]func(*v1.Service){
		"address":  func(s *v1.Service) { s.Spec.ClusterIPs[0] = "10.96.0.2" },
		"external": func(s *v1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} },
		"port":     func(s *v1.Service) { s.Spec.Ports[0].Port++ },
		"policy":   func(s *v1.Service) { s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal },
		"affinity": func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
	} {
		if other, _ := keepService(web(change)); sameService(same, other) {
			t.Errorf("another %s is the same", name)
		}
	}
	if other, _ := keepService(web(func(s *v1.Service) { s.Annotations = map[string]string{"a": "b"} })); !sameService(same, other) {
		t.Error("an annotation matters")
	}
	a, _ := keepSlice(ends("a", "10.1.0.2 ready"), "own")
	for _, text := range []string{"10.1.0.3 ready", "10.1.0.2 local ready", "10.1.0.2 serving terminating"} {
		if b, _ := keepSlice(ends("a", text), "own"); sameSlice(a, b) {
			t.Errorf("%s is the same", text)
		}
	}
}

func BenchmarkConvert(b *testing.B) {
	var svcs []*v1.Service
	var slices []*discoveryv1.EndpointSlice
	for i := range 500 {
		name := fmt.Sprint("s", i)
		svcs = append(svcs, web(func(s *v1.Service) { s.Name = name }))
		s := ends(name, "10.1.0.2 ready", "10.1.0.3 ready", "10.1.0.4 ready", "10.1.0.5 ready")
		s.Labels[discoveryv1.LabelServiceName] = name
		slices = append(slices, s)
	}
	kept, of := map[listwatch.Key]service{}, map[listwatch.Key]slice{}
	for i := range svcs {
		key := listwatch.Key{Namespace: "shop", Name: svcs[i].Name}
		kept[key], _ = keepService(svcs[i])
		of[key], _ = keepSlice(slices[i], "own")
	}
	b.ReportAllocs()
	for b.Loop() {
		convert(kept, of, "pods0", apart{})
	}
}
