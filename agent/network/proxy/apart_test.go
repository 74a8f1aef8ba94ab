package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
)

func ips(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// thisNode has the address 192.168.1.20, with the API server and a router on the
// same link.
func thisNode() apart {
	return apart{
		servers: ips("192.168.1.10", "fd00::10"), routers: ips("192.168.1.1"),
		own: ips("127.0.0.1", "192.168.1.20", "10.88.0.1", "fd00::20"), ports: []uint16{10248, 10250},
	}
}

func TestApart(t *testing.T) {
	external := func(port int32, addresses ...string) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.ExternalIPs, s.Spec.Ports[0].Port = addresses, port }
	}
	for _, row := range []struct {
		name   string
		change func(*v1.Service)
		want   string
		claims int
	}{
		{"the API server", external(6443, "192.168.1.10", "203.0.113.1"), "[10.96.0.1]:6443 external [203.0.113.1]", 1},
		{"the API server, any port", external(80, "192.168.1.10"), "[10.96.0.1]:80", 1},
		{"the API server by IPv6", external(6443, "fd00::10"), "[10.96.0.1]:6443", 1},
		{"the API server, mapped", external(6443, "::ffff:192.168.1.10"), "[10.96.0.1]:6443", 1},
		{"the router", external(53, "192.168.1.1"), "[10.96.0.1]:53", 1},
		{"the node's port", external(10250, "192.168.1.20", "fd00::20", "10.88.0.1"), "[10.96.0.1]:10250", 3},
		{"another port of the node", external(443, "192.168.1.20"), "[10.96.0.1]:443 external [192.168.1.20]", 0},
		{"the node's port on another", external(10250, "192.168.1.30"), "[10.96.0.1]:10250 external [192.168.1.30]", 0},
		{"the node's port by UDP", func(s *v1.Service) {
			external(10250, "192.168.1.20")(s)
			s.Spec.Ports[0].Protocol = v1.ProtocolUDP
		}, "[10.96.0.1]:10250 external [192.168.1.20]", 0},
		{"loopback and link-local", external(80, "127.0.0.1", "::1", "169.254.1.1", "fe80::1", "224.0.0.1", "0.0.0.0"), "[10.96.0.1]:80", 0},
		{"a load balancer at the API server", func(s *v1.Service) {
			s.Spec.Type = v1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.168.1.10"}, {IP: "203.0.113.1"}}
		}, "[10.96.0.1]:80 external [203.0.113.1]", 1},
		{"a cluster IP of the API server's", func(s *v1.Service) { s.Spec.ClusterIPs = []string{"192.168.1.10", "10.96.0.1"} }, "[10.96.0.1]:80", 1},
		{"a cluster IP of the node's own port", func(s *v1.Service) {
			s.Spec.ClusterIPs, s.Spec.Ports[0].Port = []string{"192.168.1.20"}, 10250
		}, "[]:10250", 1},
		{"a node port of the agent's", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 10250 }, "[10.96.0.1]:80", 1},
		{"a node port", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30250 }, "[10.96.0.1]:80 node 30250", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			kept, ok := keepService(web(row.change))
			if !ok {
				t.Fatal("the Service is not kept at all")
			}
			key := listwatch.Key{Namespace: "shop", Name: "web"}
			out, claims := convert(map[listwatch.Key]service{key: kept}, nil, "pods0", thisNode())
			got := strings.TrimSuffix(short(out[0]), " to []")
			if _, got, _ = strings.Cut(got, " "); got != row.want || len(claims) != row.claims {
				t.Errorf("%s, claims %v; want %s and %d claims", got, claims, row.want, row.claims)
			}
		})
	}
}

// TestKubernetes has the Service that leads to the API server. Its cluster IP may
// be the API server's address for this node too.
func TestKubernetes(t *testing.T) {
	s := web(func(s *v1.Service) { s.Spec.Ports[0].Port, s.Spec.ExternalIPs = 443, []string{"192.168.1.10"} })
	endpoints := ends("kubernetes", "192.168.1.10 ready")
	kept, _ := keepService(s)
	end, ok := keepSlice(endpoints, "own")
	if !ok {
		t.Fatal("the endpoint at the API server's address is not kept")
	}
	end.service = kubernetes.Name
	all := map[listwatch.Key]service{kubernetes: kept}
	of := map[listwatch.Key]slice{{Namespace: "default", Name: "kubernetes"}: end}
	a := thisNode()
	a.servers = append(a.servers, ips("10.96.0.1")...)
	out, claims := convert(all, of, "pods0", a)
	if got := short(out[0]); got != "default/kubernetes:http/TCP [10.96.0.1]:443 to [192.168.1.10:8080]" || len(claims) != 1 {
		t.Errorf("%s, claims %v", got, claims)
	}
	if got := a.table(all); !slices.Equal(got.Hosts, ips("192.168.1.10", "fd00::10", "192.168.1.1")) || !slices.Equal(got.Ports, a.ports) {
		t.Errorf("the table keeps apart %+v", got)
	}
	// Of any other Service it is nobody's cluster IP.
	key := listwatch.Key{Namespace: "shop", Name: "kubernetes"}
	if out, claims := convert(map[listwatch.Key]service{key: kept}, nil, "pods0", a); len(out[0].IPs) != 0 || len(claims) != 2 {
		t.Errorf("another Service has %v", out[0].IPs)
	}
}

func TestClaimsAreToldOnce(t *testing.T) {
	inLab(t, func(l *lab) {
		l.cfg.Server = func() []netip.Addr { return ips("192.168.1.10") }
		l.cfg.Host = func() (own, routers []netip.Addr, err error) { return ips("192.168.1.20"), nil, nil }
		l.cfg.Ports = []uint16{10250}
		l.Put(web(func(s *v1.Service) { s.Spec.ExternalIPs = []string{"192.168.1.10"} }))
		l.Put(ends("a", "10.1.0.2 ready"))
	}, func(l *lab) {
		l.TableCreated()
		l.expect(1, with)
		if got := l.shelf.apart; !slices.Equal(got.Hosts, ips("192.168.1.10")) || !slices.Equal(got.Ports, []uint16{10250}) {
			t.Errorf("the table keeps apart %+v", got)
		}
		l.Put(ends("b", "10.1.0.3 ready"))
		l.expect(1, withTwo)
		if n := strings.Count(l.log.String(), "rejected address of Service"); n != 1 || !strings.Contains(l.log.String(), "192.168.1.10, the API server's address") {
			t.Errorf("told %d times: %s", n, l.log.String())
		}
		events := 0
		for _, e := range l.cfg.Events.Recent() {
			if e.Reason == "ServiceAddressLeftOut" {
				events++
			}
		}
		if events != 1 {
			t.Errorf("%d events", events)
		}
		l.AddressesChanged()
		l.expect(1, withTwo)
		// One that is made again after it was put right is told again.
		l.Put(web(nil))
		l.expect(1, withTwo)
		l.Put(web(func(s *v1.Service) { s.Spec.ExternalIPs = []string{"192.168.1.10"} }))
		l.expect(1, withTwo)
		if n := strings.Count(l.log.String(), "rejected address of Service"); n != 2 {
			t.Errorf("told %d times in all", n)
		}
	})
}

// TestClaimsAreBounded has more claims than are reported.
func TestClaimsAreBounded(t *testing.T) {
	inLab(t, func(l *lab) {
		l.cfg.Server = func() []netip.Addr { return ips("192.168.1.10") }
		for i := range 3 * maxRejections {
			l.Put(web(func(s *v1.Service) {
				s.Name, s.Spec.ExternalIPs = fmt.Sprintf("s%d", i), []string{"192.168.1.10"}
			}))
		}
		l.Put(ends("a", "10.1.0.2 ready"))
	}, func(l *lab) {
		l.TableCreated()
		l.TableCreated()
		if l.told(); strings.Count(l.log.String(), "rejected address of Service") > maxRejections {
			t.Error("all claims are told")
		}
	})
}
