package podnet

import (
	"net"
	"testing"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// TestTraffic is who reaches whom, and as whom it is seen.
func TestTraffic(t *testing.T) {
	l := newLab(t, nil)
	a := l.start(nil)
	b := l.start(func(p *Pod) {
		p.Ports = []nft.Port{
			{Protocol: nft.TCP, Host: 8080, Target: 80},
			{Protocol: nft.UDP, Host: 8053, Target: 53},
			{Protocol: nft.TCP, Host: 9090, Target: 80, HostIP: addrs(hostOutside)[0]},
		}
	})
	for _, s := range []struct {
		ns   *pod
		port int
	}{{a, 80}, {b, 80}} {
		serve(t, s.ns.ns, "tcp", s.port)
	}
	serve(t, b.ns, "udp", 53)
	serve(t, l.host, "tcp", 70)
	serve(t, l.outside, "tcp", 70)
	a4, a6, b4, b6 := a.address(false), a.address(true), b.address(false), b.address(true)
	at := func(host, port string) string { return net.JoinHostPort(host, port) }
	for _, row := range []struct {
		name, network, to, seen string
		pod                     *pod
		outside                 bool
	}{
		{name: "pod to pod", pod: a, network: "tcp", to: at(b4, "80"), seen: a4},
		{name: "pod to pod, IPv6", pod: a, network: "tcp", to: at(b6, "80"), seen: a6},
		{name: "pod to host", pod: a, network: "tcp", to: at(hostOutside, "70"), seen: a4},
		{name: "pod to its gateway", pod: a, network: "tcp", to: "10.88.0.1:70", seen: a4},
		{name: "pod to host, IPv6", pod: a, network: "tcp", to: at(hostOutsideV6, "70"), seen: a6},
		{name: "host to pod", network: "tcp", to: at(a4, "80"), seen: "10.88.0.1"},
		{name: "host to pod, IPv6", network: "tcp", to: at(a6, "80"), seen: "fd00:88::1"},
		{name: "pod to the world", pod: a, network: "tcp", to: at(outside, "70"), seen: hostOutside},
		{name: "pod to the world, IPv6", pod: a, network: "tcp", to: at(outsideV6, "70"), seen: hostOutsideV6},
		{name: "host port from outside", outside: true, network: "tcp", to: at(hostOutside, "8080"), seen: outside},
		{name: "host port from outside, IPv6", outside: true, network: "tcp", to: at(hostOutsideV6, "8080"), seen: outsideV6},
		{name: "host port from outside, UDP", outside: true, network: "udp", to: at(hostOutside, "8053"), seen: outside},
		{name: "host port of one address", outside: true, network: "tcp", to: at(hostOutside, "9090"), seen: outside},
		{name: "host port from the host", network: "tcp", to: at(hostOutside, "8080"), seen: "10.88.0.1"},
		{name: "host port from localhost", network: "tcp", to: "127.0.0.1:8080", seen: "10.88.0.1"},
		{name: "host port from localhost, UDP", network: "udp", to: "127.0.0.1:8053", seen: "10.88.0.1"},
		{name: "host port from another pod", pod: a, network: "tcp", to: at(hostOutside, "8080"), seen: "10.88.0.1"},
		{name: "host port from the pod itself", pod: b, network: "tcp", to: at(hostOutside, "8080"), seen: "10.88.0.1"},
		{name: "a pod to itself", pod: b, network: "tcp", to: at(b4, "80"), seen: b4},
		{name: "a port of another address", network: "tcp", to: "127.0.0.1:9090"},
		{name: "outside to pod", outside: true, network: "tcp", to: at(a4, "80")},
	} {
		t.Run(row.name, func(t *testing.T) {
			ns := l.host
			switch {
			case row.outside:
				ns = l.outside
			case row.pod != nil:
				ns = row.pod.ns
			}
			seen, err := ask(ns, row.network, row.to)
			if row.seen == "" {
				if err == nil {
					t.Errorf("it was answered, as %s", seen)
				}
				return
			}
			// From the host's own address it does not matter which one.
			if err != nil || seen != row.seen && !(ns == l.host && seen == hostOutside) {
				t.Errorf("seen as %q, want %q: %v", seen, row.seen, err)
			}
		})
	}
	for _, p := range []*pod{a, b} {
		l.must(func() error { return l.net.Check(p.Pod) })
		l.must(func() error { return l.net.Teardown(p.ID) })
		l.must(func() error { return l.net.Teardown(p.ID) })
	}
	if left := l.state(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func TestResult(t *testing.T) {
	l := newLab(t, func(c *cni.Config) { c.MTU = 1400 })
	p := l.start(func(p *Pod) {
		p.Addresses = addrs("10.88.0.77", "fd00:88::77")
		p.Ingress, p.Egress = link.Rate{BitsPerSecond: 10e6}, link.Rate{BitsPerSecond: 20e6}
	})
	if got := p.result; got.Inside.Name != "eth0" || got.Inside.MTU != 1400 || got.Inside.MAC.String() != "0a:58:0a:58:00:4d" ||
		got.Addresses[0].String() != "10.88.0.77/24" || got.Addresses[1].String() != "fd00:88::77/64" ||
		got.Gateways[0].String() != "10.88.0.1" || got.Gateways[1].String() != "fd00:88::1" || got.Bridge.Name != "pods0" || got.Host.Name != hostName(p.Owner()) {
		t.Errorf("%+v", got)
	}
	inside, err := link.OpenIn(p.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	eth0, err := inside.Link("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if rate, err := inside.ShapedTo(eth0.Index); err != nil || rate.BitsPerSecond != 20e6 {
		t.Errorf("what comes out: %+v, %v", rate, err)
	}
	host, err := link.OpenIn(l.host)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	end, err := host.Link(p.result.Host.Name)
	if err != nil || end.Alias != "tinylet:default/p1" {
		t.Fatalf("%+v, %v", end, err)
	}
	if rate, err := host.ShapedTo(end.Index); err != nil || rate.BitsPerSecond != 10e6 {
		t.Errorf("what goes in: %+v, %v", rate, err)
	}
}
