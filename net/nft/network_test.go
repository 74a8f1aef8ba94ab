package nft

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// network is a machine with a bridge and two pods, and another machine.
type network struct {
	testing.TB
	outside, host, a, b *os.File
}

// ip runs commands of the program ip in a namespace.
func (n *network) ip(ns *os.File, lines ...string) {
	n.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		n.Skip("the program ip is missing")
	}
	if err := netns.Do(ns, func() error {
		c := exec.Command("ip", "-batch", "-")
		c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		n.Fatal(err)
	}
}

func (n *network) sysctl(ns *os.File, path, value string) {
	n.Helper()
	if err := netns.Do(ns, func() error {
		return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0)
	}); err != nil {
		n.Fatal(err)
	}
}

func path(ns *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }

// connect makes all namespaces, their links, addresses and routes.
func connect(t testing.TB) *network {
	n := &network{t, nstest.New(t), nstest.New(t), nstest.New(t), nstest.New(t)}
	for _, ns := range []*os.File{n.outside, n.host, n.a, n.b} {
		n.sysctl(ns, "ipv6/conf/default/accept_dad", "0")
	}
	n.ip(n.host,
		"link set lo up",
		"link add pods0 type bridge",
		"link add eth0 type veth peer name eth0 netns "+path(n.outside),
		"link add veth1 type veth peer name eth0 netns "+path(n.a),
		"link add veth2 type veth peer name eth0 netns "+path(n.b),
		"link set veth1 master pods0", "link set veth2 master pods0",
		"addr add 192.0.2.1/24 dev eth0", "addr add 192.0.2.9/24 dev eth0", "addr add 2001:db8::1/64 dev eth0 nodad",
		"addr add 10.244.1.1/24 dev pods0", "addr add fd00:244:1::1/64 dev pods0 nodad",
		"link set eth0 up", "link set veth1 up", "link set veth2 up", "link set pods0 up")
	n.ip(n.outside, "link set lo up", "addr add 192.0.2.2/24 dev eth0", "addr add 2001:db8::2/64 dev eth0 nodad", "link set eth0 up")
	for i, pod := range []*os.File{n.a, n.b} {
		n.ip(pod, "link set lo up",
			fmt.Sprintf("addr add 10.244.1.%d/24 dev eth0", i+2), fmt.Sprintf("addr add fd00:244:1::%d/64 dev eth0 nodad", i+2),
			"link set eth0 up", "route add default via 10.244.1.1", "route add default via fd00:244:1::1")
	}
	// The hairpin of a pod to itself is the bridge's.
	n.ip(n.host, "link set veth1 type bridge_slave hairpin on", "link set veth2 type bridge_slave hairpin on")
	n.sysctl(n.host, "ipv4/ip_forward", "1")
	n.sysctl(n.host, "ipv6/conf/all/forwarding", "1")
	n.sysctl(n.host, "ipv4/conf/pods0/route_localnet", "1")
	return n
}

// serve answers connections and datagrams at an address with a name and the
// address of who asks.
func (n *network) serve(ns *os.File, addr, name string) {
	n.Helper()
	var l net.Listener
	var p net.PacketConn
	if err := netns.Do(ns, func() (err error) {
		if l, err = net.Listen("tcp", addr); err == nil {
			p, err = net.ListenPacket("udp", addr)
		}
		return err
	}); err != nil {
		n.Fatal(err)
	}
	ended := make(chan bool, 2)
	go func() {
		defer func() { ended <- true }()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %s", name, addressOf(c.RemoteAddr()))
			c.Close()
		}
	}()
	go func() {
		defer func() { ended <- true }()
		for buf := make([]byte, 512); ; {
			_, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(packetTo{p, from}, "%s %s", name, addressOf(from))
		}
	}()
	n.Cleanup(func() { l.Close(); p.Close(); <-ended; <-ended })
}

type packetTo struct {
	net.PacketConn
	to net.Addr
}

func (p packetTo) Write(b []byte) (int, error) { return p.WriteTo(b, p.to) }

func addressOf(a net.Addr) string { return netip.MustParseAddrPort(a.String()).Addr().Unmap().String() }

// patience is the wait for an answer that should come; that for one that
// should not is a fraction.
const patience = 2 * time.Second

// ask is what is answered at an address, or "" if nothing is.
func (n *network) ask(ns *os.File, protocol, addr string, wait time.Duration) string {
	n.Helper()
	var c net.Conn
	if err := netns.Do(ns, func() (err error) {
		c, err = net.DialTimeout(protocol, addr, wait)
		return err
	}); err != nil {
		n.Logf("%s: %v", addr, err)
		return ""
	}
	defer c.Close()
	return n.hear(c, wait)
}

// dial opens a socket in a namespace, for the test.
func (n *network) dial(ns *os.File, protocol, addr string) (c net.Conn) {
	n.Helper()
	if err := netns.Do(ns, func() (err error) {
		c, err = net.Dial(protocol, addr)
		return err
	}); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { c.Close() })
	return c
}

// hear sends a datagram on an open socket, and is what is answered.
func (n *network) hear(c net.Conn, wait time.Duration) string {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		n.Fatal(err)
	}
	if c.LocalAddr().Network() == "udp" {
		if _, err := c.Write([]byte("?")); err != nil {
			n.Log(err)
			return ""
		}
		buf := make([]byte, 512)
		m, err := c.Read(buf)
		if err != nil {
			n.Log(err)
		}
		return string(buf[:m])
	}
	data, err := io.ReadAll(c)
	if err != nil {
		n.Log(err)
	}
	return string(data)
}

// answers checks what is answered by TCP and UDP.
func (n *network) answers(ns *os.File, addr, want string) {
	n.Helper()
	for _, protocol := range []string{"tcp", "udp"} {
		wait := patience
		if want == "" {
			wait = patience / 8
		}
		if got := n.ask(ns, protocol, addr, wait); got != want {
			n.Errorf("%s %s: %q, want %q", protocol, addr, got, want)
		}
	}
}
