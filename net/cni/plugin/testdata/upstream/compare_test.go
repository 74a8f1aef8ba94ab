package upstream

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// Who there is outside of the node, and the node for them.
const (
	host4, outside4 = "192.0.2.1", "192.0.2.2"
	host6, outside6 = "2001:db8::1", "2001:db8::2"
)

// ownWays are those in which tinylet-cni differs: between two pods it puts the
// node in the place of the one that asks, so that the answer comes back through
// the node also where the kernel does not show the bridge's packets to netfilter
// (without br_netfilter, or with bridge-nf-call-iptables=0). There the others
// have no answer.
var ownWays = map[string]string{
	"the pod beside is seen at tcp HOST4:8080 as ":   "BRIDGE4",
	"the pod beside is seen at tcp [HOST6]:8080 as ": "BRIDGE6",
}

// withoutWays leaves these out.
func withoutWays(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		for way := range ownWays {
			if strings.HasPrefix(line, way) {
				return true
			}
		}
		return false
	})
}

// TestCompare has the same asked of tinylet-cni and of bridge with host-local
// and portmap, and holds what a container gets by the one against the other.
func TestCompare(t *testing.T) {
	own, other := describe(t, newOwn(t, "1.0.0")), describe(t, newOther(t))
	if diff := cmp.Diff(withoutWays(other), withoutWays(own)); diff != "" {
		t.Errorf("the others' (-) and ours (+):\n%s", diff)
	}
	for way, want := range ownWays {
		if !slices.Contains(own, way+want) {
			t.Errorf("%s not %s:\n%s", way, want, strings.Join(own, "\n"))
		}
	}
}

// TestWithoutBridgeNetfilter has the same for all that ask, whether the bridge's
// packets are shown to netfilter or not.
func TestWithoutBridgeNetfilter(t *testing.T) {
	described := map[string][]string{}
	for _, value := range []string{"0", "1"} {
		n := newOwn(t, "1.0.0")
		for _, key := range []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"} {
			var err error
			n.on(func() error { err = link.SetSysctl(key, value); return nil })
			if errors.Is(err, fs.ErrNotExist) {
				t.Skip("the kernel has no br_netfilter, so that it is the one of both cases that TestCompare is in")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		described[value] = describe(t, n)
	}
	if diff := cmp.Diff(described["1"], described["0"]); diff != "" {
		t.Errorf("with (-) and without (+):\n%s", diff)
	}
}

// describe is all that a container gets from a node.
func describe(t *testing.T, n *node) (lines []string) {
	t.Helper()
	outside := nstest.New(t)
	n.wire(outside)
	pod, beside := n.newContainer(web...), n.newContainer()
	result, err := types100.NewResultFromResult(n.add(pod))
	if err != nil {
		t.Fatal(err)
	}
	n.add(beside)
	names := n.names(pod, beside)
	lines = append(describeResult(result), describeInside(inside(t, pod))...)
	serve(t, pod.ns, "tcp", 80)
	serve(t, pod.ns, "udp", 53)
	serve(t, outside, "tcp", 70)
	for _, way := range []struct {
		from        string
		ns          *os.File
		network, to string
	}{
		{"outside", outside, "tcp", host4 + ":8080"},
		{"outside", outside, "udp", host4 + ":5353"},
		{"outside", outside, "tcp", "[" + host6 + "]:8080"},
		{"outside", outside, "udp", "[" + host6 + "]:5353"},
		{"the host", n.host, "tcp", host4 + ":8080"},
		{"the host", n.host, "udp", host4 + ":5353"},
		{"the host", n.host, "tcp", "127.0.0.1:8080"},
		{"the host", n.host, "udp", "127.0.0.1:5353"},
		{"the host", n.host, "tcp", "[" + host6 + "]:8080"},
		{"the pod", pod.ns, "tcp", host4 + ":8080"},
		{"the pod", pod.ns, "tcp", "[" + host6 + "]:8080"},
		{"the pod", pod.ns, "tcp", outside4 + ":70"},
		{"the pod", pod.ns, "tcp", "[" + outside6 + "]:70"},
		{"the pod beside", beside.ns, "tcp", host4 + ":8080"},
		{"the pod beside", beside.ns, "tcp", "[" + host6 + "]:8080"},
		{"the pod beside", beside.ns, "tcp", netip.AddrPortFrom(netip.MustParseAddr(names.pod4), 80).String()},
		{"the pod beside", beside.ns, "tcp", netip.AddrPortFrom(netip.MustParseAddr(names.pod6), 80).String()},
	} {
		as, err := ask(way.ns, way.network, way.to)
		if err != nil {
			as = "nobody: it cannot be reached"
		}
		lines = append(lines, fmt.Sprintf("%s is seen at %s %s as %s", way.from, way.network, way.to, as))
	}
	return names.put(lines)
}

func describeResult(r *types100.Result) (lines []string) {
	for _, ip := range r.IPs {
		i := r.Interfaces[*ip.Interface]
		lines = append(lines, fmt.Sprintf("told: %v by %v on %s in a sandbox: %t", &ip.Address, ip.Gateway, i.Name, i.Sandbox != ""))
	}
	for _, route := range r.Routes {
		lines = append(lines, fmt.Sprintf("told: route %v", &route.Dst))
	}
	return lines
}

func describeInside(in seen) (lines []string) {
	lines = append(lines, fmt.Sprintf("there: mtu %d, up %t", in.link.MTU, in.link.Flags&net.FlagUp != 0))
	for _, a := range in.addresses {
		lines = append(lines, "there: "+a)
	}
	for _, r := range in.routes {
		lines = append(lines, "there: route "+r)
	}
	return lines
}

// names are the addresses by chance.
type names struct{ pod4, pod6, beside4, beside6 string }

func (n *node) names(pod, beside *container) (s names) {
	n.Helper()
	of := func(c *container) (v4, v6 string) {
		for _, a := range inside(n, c).addresses {
			if p := netip.MustParsePrefix(a); p.Addr().Is4() {
				v4 = p.Addr().String()
			} else {
				v6 = p.Addr().String()
			}
		}
		return v4, v6
	}
	s.pod4, s.pod6 = of(pod)
	s.beside4, s.beside6 = of(beside)
	return s
}

// put gives everybody their names. The addresses end at a line's end, before a
// bracket, a slash or a colon.
func (s names) put(lines []string) []string {
	for _, pair := range [][2]string{
		{s.pod4, "POD4"}, {s.pod6, "POD6"}, {s.beside4, "BESIDE4"}, {s.beside6, "BESIDE6"},
		{gateway4, "BRIDGE4"}, {gateway6, "BRIDGE6"}, {host4, "HOST4"}, {host6, "HOST6"}, {outside4, "OUTSIDE4"}, {outside6, "OUTSIDE6"},
	} {
		for i, line := range lines {
			line += " "
			for _, end := range []string{" ", "/", "]", ":70", ":80", ":53"} {
				line = strings.ReplaceAll(line, pair[0]+end, pair[1]+end)
			}
			lines[i] = strings.TrimSuffix(line, " ")
		}
	}
	return lines
}

// wire joins a node to a neighbour, who knows no way to containers.
func (n *node) wire(outside *os.File) {
	n.Helper()
	prefixes := func(v4, v6 string) []netip.Prefix {
		return []netip.Prefix{netip.MustParsePrefix(v4 + "/24"), netip.MustParsePrefix(v6 + "/64")}
	}
	h, err := link.OpenIn(n.host)
	if err != nil {
		n.Fatal(err)
	}
	defer h.Close()
	if err := h.CreateVeth(link.Veth{Name: "eth0", Peer: link.Peer{Name: "eth0", NS: outside}}); err != nil {
		n.Fatal(err)
	}
	gateways := []netip.Addr{netip.MustParseAddr(outside4), netip.MustParseAddr(outside6)}
	if _, err := h.Configure(link.Inside{Interface: "eth0", Addresses: prefixes(host4, host6), Gateways: gateways}); err != nil {
		n.Fatal(err)
	}
	o, err := link.OpenIn(outside)
	if err != nil {
		n.Fatal(err)
	}
	defer o.Close()
	if _, err := o.Configure(link.Inside{Interface: "eth0", Addresses: prefixes(outside4, outside6)}); err != nil {
		n.Fatal(err)
	}
}

// serve answers on a port of a namespace with the address of who asks.
func serve(t testing.TB, ns *os.File, network string, port int) {
	t.Helper()
	if err := netns.Do(ns, func() error {
		if network == "udp" {
			c, err := net.ListenPacket(network, ":"+strconv.Itoa(port))
			if err == nil {
				t.Cleanup(func() { c.Close() })
				go answerPackets(c)
			}
			return err
		}
		s, err := net.Listen(network, ":"+strconv.Itoa(port))
		if err == nil {
			t.Cleanup(func() { s.Close() })
			go answerConnections(s)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func answerPackets(c net.PacketConn) {
	for {
		b := make([]byte, 64)
		_, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte(hostOf(from)), from)
	}
}

func answerConnections(s net.Listener) {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, hostOf(c.RemoteAddr()))
		c.Close()
	}
}

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String())
	return host
}

// ask says as whom a server sees somebody in a namespace.
func ask(ns *os.File, network, address string) (as string, err error) {
	err = netns.Do(ns, func() error {
		c, err := net.DialTimeout(network, address, 3*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		if network == "udp" {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		as = string(b[:n])
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
	return as, err
}
