package podnet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
	"github.com/tinylet/tinylet/net/nft"
)

// Addresses of the lab's networks.
const (
	hostOutside    = "192.0.2.1"
	outside        = "192.0.2.2"
	hostOutsideV6  = "2001:db8::1"
	outsideV6      = "2001:db8::2"
	podsV4, podsV6 = "10.88.0.0/24", "fd00:88::/64"
)

// lab is a node in a namespace of its own, with one neighbour outside.
type lab struct {
	testing.TB
	host, outside *os.File
	net           *Network
	pods          int
}

func newLab(t testing.TB, change func(*cni.Config)) *lab {
	t.Helper()
	l := &lab{TB: t, host: nstest.New(t), outside: nstest.New(t)}
	wire(t, l.host, l.outside)
	c := cni.Config{
		Bridge: "pods0", Masquerade: true, Hairpin: true, StateDir: filepath.Join(t.TempDir(), "leases"),
		Ranges: []ipam.Range{{Prefix: netip.MustParsePrefix(podsV4)}, {Prefix: netip.MustParsePrefix(podsV6)}},
	}
	if change != nil {
		change(&c)
	}
	var err error
	if l.net, err = New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.net.Close() })
	return l
}

// wire joins two namespaces by a pair of links, as an uplink.
func wire(t testing.TB, host, outside *os.File) {
	t.Helper()
	h, err := link.OpenIn(host)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.CreateVeth(link.Veth{Name: "eth0", Peer: link.Peer{Name: "eth0", NS: outside}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Configure(link.Inside{Interface: "eth0", Gateways: addrs(outside2(true), outside2(false)),
		Addresses: []netip.Prefix{netip.MustParsePrefix(hostOutside + "/24"), netip.MustParsePrefix(hostOutsideV6 + "/64")}}); err != nil {
		t.Fatal(err)
	}
	o, err := link.OpenIn(outside)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	// It knows no way to the pods: what they send has to come from the host.
	if _, err := o.Configure(link.Inside{Interface: "eth0",
		Addresses: []netip.Prefix{netip.MustParsePrefix(outside2(true) + "/24"), netip.MustParsePrefix(outside2(false) + "/64")}}); err != nil {
		t.Fatal(err)
	}
}

func outside2(v4 bool) string {
	if v4 {
		return outside
	}
	return outsideV6
}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// on runs something in the host's namespace.
func (l *lab) on(do func() error) error { return netns.Do(l.host, do) }

// must runs something there that has to succeed.
func (l *lab) must(do func() error) {
	l.Helper()
	if err := l.on(do); err != nil {
		l.Fatal(err)
	}
}

// pod is one that is set up.
type pod struct {
	Pod
	ns     *os.File
	result Result
}

// newPod is one that is not set up yet.
func (l *lab) newPod() *pod {
	l.Helper()
	l.pods++
	ns := nstest.New(l)
	return &pod{ns: ns, Pod: Pod{
		ID:    cni.ID{ContainerID: fmt.Sprintf("%064x", l.pods), Interface: "eth0"},
		NetNS: fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), Namespace: "default", Name: "p" + strconv.Itoa(l.pods),
	}}
}

// start sets a pod up.
func (l *lab) start(change func(*Pod)) *pod {
	l.Helper()
	p := l.newPod()
	if change != nil {
		change(&p.Pod)
	}
	l.must(func() (err error) {
		p.result, err = l.net.Setup(p.Pod)
		return err
	})
	return p
}

func (p *pod) address(v6 bool) string {
	for _, a := range p.result.Addresses {
		if a.Addr().Is6() == v6 {
			return a.Addr().String()
		}
	}
	return ""
}

// serve answers on a port of a namespace with the address of who asks.
func serve(t testing.TB, ns *os.File, network string, port int) {
	t.Helper()
	if err := netns.Do(ns, func() error {
		if strings.HasPrefix(network, "udp") {
			c, err := net.ListenPacket(network, ":"+strconv.Itoa(port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				b := make([]byte, 64)
				for {
					_, from, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = c.WriteTo([]byte(hostOf(from)), from)
				}
			}()
			return nil
		}
		s, err := net.Listen(network, ":"+strconv.Itoa(port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { s.Close() })
		go func() {
			for {
				c, err := s.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, hostOf(c.RemoteAddr()))
				c.Close()
			}
		}()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String())
	return host
}

// ask says as whom a server sees somebody in a namespace.
func ask(ns *os.File, network, address string) (string, error) {
	seen := ""
	err := netns.Do(ns, func() error {
		c, err := net.DialTimeout(network, address, 3*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		if strings.HasPrefix(network, "udp") {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		seen = string(b[:n])
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
	return seen, err
}

// state is all that is left of pods' networks in the host's namespace.
func (l *lab) state() string {
	l.Helper()
	var b bytes.Buffer
	l.must(func() error {
		host, err := link.Open()
		if err != nil {
			return err
		}
		defer host.Close()
		links, err := host.Links()
		if err != nil {
			return err
		}
		for _, k := range links {
			if k.Kind == "veth" && k.Name != "eth0" {
				fmt.Fprintf(&b, "link %s %q\n", k.Name, k.Alias)
			}
		}
		table, err := nft.Open()
		if err != nil {
			return err
		}
		defer table.Close()
		ports, err := table.Ports()
		if err != nil && !errors.Is(err, nft.ErrNoTable) {
			return err
		}
		for _, p := range ports {
			fmt.Fprintf(&b, "port %v of %s\n", p, p.Owner)
		}
		for _, name := range senderPorts() {
			if _, err := host.Link(name); errors.Is(err, link.ErrNotFound) {
				fmt.Fprintf(&b, "sender %s without a link\n", name)
			}
		}
		entries, err := l.net.List()
		for _, e := range entries {
			fmt.Fprintf(&b, "lease %v of %s\n", e.Addresses, e.Pod)
		}
		return err
	})
	return b.String()
}

// senderPorts returns the interfaces of the table bridge tinylet in the calling thread's
// namespace, none without a table.
func senderPorts() (names []string) {
	out, _ := exec.Command("nft", "list", "set", "bridge", "tinylet", "ports").Output()
	_, elements, _ := strings.Cut(string(out), "elements = ")
	for i, part := range strings.Split(elements, `"`) {
		if i%2 == 1 {
			names = append(names, part)
		}
	}
	return names
}

// run runs a program in the host's namespace.
func (l *lab) run(argv ...string) string {
	l.Helper()
	var out []byte
	l.must(func() (err error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		out, err = cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", argv, err, out)
		}
		return nil
	})
	return string(out)
}
