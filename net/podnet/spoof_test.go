package podnet

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/nft"
)

// wireEnd sends and hears raw frames in a pod.
type wireEnd struct {
	fd  int
	mac net.HardwareAddr
	v4  netip.Addr
	v6  netip.Addr
	own netip.Addr // link-local
}

func (l *lab) wireEnd(p *pod) *wireEnd {
	l.Helper()
	w := &wireEnd{mac: p.result.Inside.MAC, own: nft.LinkLocal(p.result.Inside.MAC)}
	for _, a := range p.result.Addresses {
		if a.Addr().Is4() {
			w.v4 = a.Addr()
		} else {
			w.v6 = a.Addr()
		}
	}
	if err := netns.Do(p.ns, func() (err error) {
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all := unix.ETH_P_ALL
		return unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: uint16(all>>8 | all<<8&0xff00), Ifindex: eth0.Index})
	}); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { unix.Close(w.fd) })
	return w
}

func (w *wireEnd) send(t testing.TB, frame []byte) {
	t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		t.Fatalf("send %x: %v", frame, err)
	}
}

// hear collects what comes until there has been nothing for a while.
func (w *wireEnd) hear(t testing.TB, quiet time.Duration) (frames [][]byte) {
	t.Helper()
	for buf := make([]byte, 4096); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, int(quiet.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return frames
		}
		if n, err = unix.Read(w.fd, buf); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, bytes.Clone(buf[:n]))
	}
}

// passes reports whether a frame of one pod comes to another. A frame of the
// sender's own, sent behind it, comes in any case but where nothing does.
func passes(t testing.TB, from, to *wireEnd, frame []byte) bool {
	t.Helper()
	marker := ether(to.mac, from.mac, unix.ETH_P_ARP, arp(1, from.mac, from.v4, to.v4))
	for range 20 {
		from.send(t, frame)
		from.send(t, marker)
		heard := to.hear(t, 30*time.Millisecond)
		is := func(want []byte) bool {
			return slices.ContainsFunc(heard, func(have []byte) bool { return bytes.HasPrefix(have, want) })
		}
		if is(frame) {
			return true
		}
		if is(marker) {
			return false
		}
	}
	t.Fatal("not even what the pod may send has come")
	return false
}

func ether(to, from net.HardwareAddr, kind uint16, payload []byte) []byte {
	frame := binary.BigEndian.AppendUint16(slices.Concat(to, from), kind)
	return append(frame, payload...)
}

func arp(operation uint16, sha net.HardwareAddr, spa, tpa netip.Addr) []byte {
	p := []byte{0, 1, 8, 0, 6, 4}
	p = binary.BigEndian.AppendUint16(p, operation)
	return slices.Concat(p, sha, spa.AsSlice(), make([]byte, 6), tpa.AsSlice())
}

func udp(from, to uint16) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	p = binary.BigEndian.AppendUint16(p, to)
	return append(p, 0, 12, 0, 0, 'e', 'v', 'i', 'l')
}

func packet4(protocol byte, from, to netip.Addr, payload []byte) []byte {
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
	h = slices.Concat(h, from.AsSlice(), to.AsSlice())
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

func packet6(next byte, from, to netip.Addr, payload []byte) []byte {
	h := []byte{0x60, 0, 0, 0, 0, 0, next, 255}
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	return slices.Concat(h, from.AsSlice(), to.AsSlice(), payload)
}

func checksum(data []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// icmp6 is a message of ICMPv6 with its checksum.
func icmp6(kind byte, from, to netip.Addr, body ...[]byte) []byte {
	m := slices.Concat(append([][]byte{{kind, 0, 0, 0}}, body...)...)
	pseudo := slices.Concat(from.AsSlice(), to.AsSlice(), binary.BigEndian.AppendUint32(nil, uint32(len(m))), []byte{0, 0, 0, 58}, m)
	binary.BigEndian.PutUint16(m[2:], checksum(pseudo))
	return m
}

func discovery(kind byte, from, to netip.Addr, target netip.Addr, options ...[]byte) []byte {
	return packet6(58, from, to, icmp6(kind, from, to, append([][]byte{{0, 0, 0, 0}, target.AsSlice()}, options...)...))
}

func linkOption(kind byte, mac net.HardwareAddr) []byte { return append([]byte{kind, 1}, mac...) }

// spoofed are frames of a pod that name others, honest those that it may send.
func frames(a, b *wireEnd) (spoofed, honest map[string][]byte) {
	gateway, any6 := netip.MustParseAddr("10.88.0.1"), netip.IPv6Unspecified()
	nonce := []byte{14, 1, 1, 2, 3, 4, 5, 6}
	to := func(kind uint16, payload []byte) []byte { return ether(b.mac, a.mac, kind, payload) }
	spoofed = map[string][]byte{
		"ARP: the gateway's address":       to(unix.ETH_P_ARP, arp(2, a.mac, gateway, b.v4)),
		"ARP: a request as the gateway":    to(unix.ETH_P_ARP, arp(1, a.mac, gateway, b.v4)),
		"ARP: the other's address":         to(unix.ETH_P_ARP, arp(2, a.mac, b.v4, b.v4)),
		"ARP: the other's MAC":             to(unix.ETH_P_ARP, arp(2, b.mac, a.v4, b.v4)),
		"ARP: is the other's address free": to(unix.ETH_P_ARP, arp(1, a.mac, netip.IPv4Unspecified(), b.v4)),
		"ARP in a VLAN":                    to(unix.ETH_P_8021Q, slices.Concat([]byte{0, 5, 8, 6}, arp(2, a.mac, gateway, b.v4))),
		"ARP in two VLANs":                 to(unix.ETH_P_8021AD, slices.Concat([]byte{0, 5, 0x81, 0, 0, 6, 8, 6}, arp(2, a.mac, gateway, b.v4))),
		"Ethernet: the other's MAC":        ether(b.mac, b.mac, unix.ETH_P_IP, packet4(17, a.v4, b.v4, udp(1, 2))),
		"Ethernet: another protocol":       to(0x88b5, []byte("anything")),
		"IPv4: the other's address":        to(unix.ETH_P_IP, packet4(17, b.v4, b.v4, udp(1, 2))),
		"IPv4: the gateway's address":      to(unix.ETH_P_IP, packet4(17, gateway, b.v4, udp(1, 2))),
		"IPv4: outside":                    to(unix.ETH_P_IP, packet4(17, netip.MustParseAddr(outside), b.v4, udp(1, 2))),
		"IPv4: loopback":                   to(unix.ETH_P_IP, packet4(17, netip.MustParseAddr("127.0.0.1"), b.v4, udp(1, 2))),
		"IPv4: a DHCP server":              to(unix.ETH_P_IP, packet4(17, a.v4, b.v4, udp(67, 68))),
		"IPv6: link-local of the other":    to(unix.ETH_P_IPV6, packet6(17, b.own, b.own, udp(1, 2))),
		"router advertisement":             to(unix.ETH_P_IPV6, packet6(58, a.own, b.own, icmp6(134, a.own, b.own, make([]byte, 12)))),
		"router advertisement behind another header": to(unix.ETH_P_IPV6, packet6(60, a.own, b.own,
			slices.Concat([]byte{58, 0, 1, 4, 0, 0, 0, 0}, icmp6(134, a.own, b.own, make([]byte, 12))))),
		"redirect":                             to(unix.ETH_P_IPV6, packet6(58, a.own, b.own, icmp6(137, a.own, b.own, make([]byte, 36)))),
		"advertisement: the other's address":   to(unix.ETH_P_IPV6, discovery(136, a.own, b.own, b.own, linkOption(2, a.mac))),
		"advertisement: the other's MAC":       to(unix.ETH_P_IPV6, discovery(136, a.own, b.own, a.own, linkOption(2, b.mac))),
		"advertisement: behind an option":      to(unix.ETH_P_IPV6, discovery(136, a.own, b.own, a.own, nonce, linkOption(2, b.mac))),
		"solicitation: the other's MAC":        to(unix.ETH_P_IPV6, discovery(135, a.own, b.own, b.own, linkOption(1, b.mac))),
		"solicitation: as the other":           to(unix.ETH_P_IPV6, discovery(135, b.own, b.own, b.own, linkOption(1, a.mac))),
		"DAD: is the other's address free":     to(unix.ETH_P_IPV6, discovery(135, any6, b.own, b.own, nonce)),
		"IPv6: from nowhere":                   to(unix.ETH_P_IPV6, packet6(17, any6, b.own, udp(1, 2))),
		"IPv6: a DHCP server":                  to(unix.ETH_P_IPV6, packet6(17, a.own, b.own, udp(547, 546))),
		"IPv6: the other's MAC and link-local": ether(b.mac, b.mac, unix.ETH_P_IPV6, packet6(17, b.own, b.own, udp(1, 2))),
	}
	report := slices.Concat([]byte{58, 0, 5, 2, 0, 0, 1, 0}, icmp6(143, any6, netip.MustParseAddr("ff02::16"), []byte{0, 0, 0, 0}))
	honest = map[string][]byte{
		"ARP reply":                    to(unix.ETH_P_ARP, arp(2, a.mac, a.v4, b.v4)),
		"ARP: is its own address free": to(unix.ETH_P_ARP, arp(1, a.mac, netip.IPv4Unspecified(), a.v4)),
		"IPv4":                         to(unix.ETH_P_IP, packet4(17, a.v4, b.v4, udp(1, 2))),
		"IPv4: a DHCP relay":           to(unix.ETH_P_IP, packet4(17, a.v4, b.v4, udp(67, 67))),
		"IPv6: link-local":             to(unix.ETH_P_IPV6, packet6(17, a.own, b.own, udp(1, 2))),
		"solicitation":                 to(unix.ETH_P_IPV6, discovery(135, a.own, b.own, b.own, linkOption(1, a.mac))),
		"advertisement":                to(unix.ETH_P_IPV6, discovery(136, a.own, b.own, a.own, linkOption(2, a.mac))),
		"advertisement of no MAC":      to(unix.ETH_P_IPV6, discovery(136, a.own, b.own, a.own)),
		"DAD":                          to(unix.ETH_P_IPV6, discovery(135, any6, b.own, a.own, nonce)),
		"which groups it listens to":   to(unix.ETH_P_IPV6, packet6(0, any6, netip.MustParseAddr("ff02::16"), report)),
		"echo request":                 to(unix.ETH_P_IPV6, packet6(58, a.own, b.own, icmp6(128, a.own, b.own, []byte{0, 1, 0, 1}))),
	}
	if a.v6.IsValid() {
		spoofed["IPv6: the other's address"] = to(unix.ETH_P_IPV6, packet6(17, b.v6, b.v6, udp(1, 2)))
		spoofed["advertisement: the other's address of the network"] = to(unix.ETH_P_IPV6, discovery(136, a.v6, b.v6, b.v6, linkOption(2, a.mac)))
		honest["IPv6"] = to(unix.ETH_P_IPV6, packet6(17, a.v6, b.v6, udp(1, 2)))
		honest["advertisement of the network's address"] = to(unix.ETH_P_IPV6, discovery(136, a.v6, b.v6, a.v6, linkOption(2, a.mac)))
		honest["DAD of the network's address"] = to(unix.ETH_P_IPV6, discovery(135, any6, b.v6, a.v6, nonce))
	}
	return spoofed, honest
}

func (l *lab) bridgeFamily() {
	l.Helper()
	l.must(func() error {
		s, err := nft.OpenSenders()
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Supported(); errors.Is(err, nft.ErrNoBridgeFamily) {
			l.Skip(err)
		} else if err != nil {
			return err
		}
		return nil
	})
}

// judge sends all frames of one pod to another, and says which pass that must
// not, and which do not that must.
func judge(t *testing.T, a, b *wireEnd) {
	t.Helper()
	spoofed, honest := frames(a, b)
	for name, frame := range spoofed {
		if passes(t, a, b, frame) {
			t.Errorf("spoofed, and it came: %s\n%s", name, hex.Dump(frame))
		}
	}
	for name, frame := range honest {
		if !passes(t, a, b, frame) {
			t.Errorf("its own, and it did not come: %s\n%s", name, hex.Dump(frame))
		}
	}
}

// TestSpoofing has one pod send raw frames to another.
func TestSpoofing(t *testing.T) {
	for name, change := range map[string]func(*cni.Config){
		"both":      nil,
		"IPv4":      func(c *cni.Config) { c.Ranges = c.Ranges[:1] },
		"no mirror": func(c *cni.Config) { c.Hairpin, c.Promiscuous = false, true },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, change)
			l.bridgeFamily()
			judge(t, l.wireEnd(l.start(nil)), l.wireEnd(l.start(nil)))
		})
	}
}

// TestSpoofingOwnMAC is of a pod that was asked for with a MAC address.
func TestSpoofingOwnMAC(t *testing.T) {
	l := newLab(t, nil)
	l.bridgeFamily()
	a := l.start(func(p *Pod) { p.MAC = net.HardwareAddr{0x02, 1, 2, 3, 4, 5} })
	l.must(l.net.Ensure)
	judge(t, l.wireEnd(a), l.wireEnd(l.start(nil)))
}

// TestSpoofingOfOlderPods is of pods that were set up by a version that did not
// restrict them, and of rules that somebody flushed.
func TestSpoofingOfOlderPods(t *testing.T) {
	l := newLab(t, nil)
	l.bridgeFamily()
	p, q := l.start(nil), l.start(nil)
	a, b := l.wireEnd(p), l.wireEnd(q)
	l.run("nft", "delete", "table", "bridge", "tinylet")
	spoofed, _ := frames(a, b)
	if !passes(t, a, b, spoofed["ARP: the gateway's address"]) {
		t.Error("without the rules it did not come either")
	}
	if err := l.on(func() error { return l.net.Check(p.Pod) }); !errors.Is(err, ErrChanged) {
		t.Errorf("check without the rules: %v", err)
	}
	l.must(l.net.Ensure)
	judge(t, a, b)
	l.must(func() error { return l.net.Check(p.Pod) })
}

// TestSpoofingOfNext is of the next pod with the address of one that is gone.
func TestSpoofingOfNext(t *testing.T) {
	l := newLab(t, nil)
	l.bridgeFamily()
	first := l.start(func(p *Pod) { p.Addresses = addrs("10.88.0.77") })
	l.must(func() error { return l.net.Teardown(first.ID) })
	second := l.start(func(p *Pod) { p.Addresses = addrs("10.88.0.77") })
	judge(t, l.wireEnd(second), l.wireEnd(l.start(nil)))
	l.must(func() error { return l.net.Teardown(second.ID) })
}

// TestRestrictedFirst has a pod's addresses known before its interface is there.
func TestRestrictedFirst(t *testing.T) {
	l := newLab(t, nil)
	l.bridgeFamily()
	p := l.newPod()
	l.kill(p.Pod, "restricted")
	l.must(func() error {
		host, err := link.Open()
		if err != nil {
			return err
		}
		defer host.Close()
		if _, err := host.Link(hostName(p.Owner())); !errors.Is(err, link.ErrNotFound) {
			return fmt.Errorf("its interface is there already: %w", err)
		}
		lease, err := l.net.leases.Get(p.Owner())
		if err != nil {
			return err
		}
		s, err := nft.OpenSenders()
		if err != nil {
			return err
		}
		defer s.Close()
		if has, err := s.Has(senderOf(lease)); err != nil || !has {
			return fmt.Errorf("what it may send from is there: %v, %w", has, err)
		}
		return nil
	})
}

// TestForgottenLast has a pod's interface down before its addresses are forgotten.
func TestForgottenLast(t *testing.T) {
	l := newLab(t, nil)
	l.bridgeFamily()
	p := l.start(nil)
	var up, checked bool
	l.net.step = func(step string) {
		if step != "unrestricted" {
			return
		}
		host, err := link.Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer host.Close()
		end, err := host.Link(hostName(p.Owner()))
		up, checked = err == nil && end.Up, true
	}
	defer func() { l.net.step = nil }()
	l.must(func() error { return l.net.Teardown(p.ID) })
	if up || !checked {
		t.Errorf("the interface is up when the pod's addresses are no longer restricted: %t (checked: %t)", up, checked)
	}
}

// TestWithoutBridgeFamily is of a kernel that cannot have the rules.
func TestWithoutBridgeFamily(t *testing.T) {
	l := newLab(t, nil)
	l.net.openSenders = func() (*nft.Senders, error) { return nil, nft.ErrNoBridgeFamily }
	p := l.start(nil)
	l.must(l.net.Ensure)
	l.must(func() error { return l.net.Check(p.Pod) })
	l.must(func() error { return l.net.Teardown(p.ID) })
	l.must(func() error {
		_, err := l.net.Collect(func(Entry) bool { return false })
		return err
	})
	if left := l.state(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// TestOtherInterfaces of the same bridge and of others are left alone.
func TestOtherInterfaces(t *testing.T) {
	l := newLab(t, nil)
	l.bridgeFamily()
	p := l.start(nil)
	b := l.wireEnd(p)
	other := l.newPod()
	l.must(func() error {
		host, err := link.Open()
		if err != nil {
			return err
		}
		defer host.Close()
		bridge, err := host.Link("pods0")
		if err != nil {
			return err
		}
		if err := host.CreateVeth(link.Veth{Name: "guest", Bridge: bridge.Index, Peer: link.Peer{Name: "eth0", NS: other.ns}}); err != nil {
			return err
		}
		inside, err := link.OpenIn(other.ns)
		if err != nil {
			return err
		}
		defer inside.Close()
		l, err := inside.Configure(link.Inside{Interface: "eth0", Addresses: []netip.Prefix{prefix("10.88.0.200/24")}})
		other.result = Result{Inside: cni.Interface{Name: "eth0", MAC: l.MAC}, Addresses: []netip.Prefix{prefix("10.88.0.200/24")}}
		return err
	})
	a := l.wireEnd(other)
	spoofed, _ := frames(a, b)
	if !passes(t, a, b, spoofed["ARP: the gateway's address"]) {
		t.Error("what is not of a pod is judged, too")
	}
}

// localnet is whether what comes by the bridge is routed to 127.0.0.0/8.
func (l *lab) localnet() (value string) {
	l.Helper()
	l.must(func() (err error) {
		value, err = link.Sysctl(routeLocalnet("pods0"))
		return err
	})
	return value
}

// TestLocalnetFollowsItsGuard has nothing routed to 127.0.0.0/8 where nothing
// guards it.
func TestLocalnetFollowsItsGuard(t *testing.T) {
	l := newLab(t, nil)
	p := l.newPod()
	l.net.step = func(step string) {
		if step != "guarded" {
			return
		}
		if got := l.localnet(); got != "0" {
			t.Errorf("behind the rules, and before the settings, it is %s", got)
		}
	}
	l.must(func() error { _, err := l.net.Setup(p.Pod); return err })
	l.net.step = nil
	if got := l.localnet(); got != "1" {
		t.Fatalf("of a pod it is %s", got)
	}
	broken := func() {
		l.run("nft", "flush", "ruleset")
		if err := l.on(func() error {
			return l.net.ensureGuarded(func(*nft.Table) error { return errors.New("no") })
		}); err == nil {
			t.Error("no error")
		}
	}
	broken()
	if got := l.localnet(); got != "0" {
		t.Errorf("without rules, which cannot be made, it is %s", got)
	}
	l.must(l.net.Ensure)
	if got := l.localnet(); got != "1" {
		t.Errorf("mended, it is %s", got)
	}
	broken()
	q := l.start(nil) // without an agent
	if got := l.localnet(); got != "1" {
		t.Errorf("with the next pod it is %s", got)
	}
	l.must(func() error { return l.net.Check(q.Pod) })
	// Where others fail that do not guard, it stays.
	if err := l.on(func() error {
		return l.net.ensureGuarded(func(*nft.Table) error { return errors.New("no") })
	}); err == nil {
		t.Error("no error")
	}
	if got := l.localnet(); got != "1" {
		t.Errorf("guarded, it is %s", got)
	}
	l.must(func() error { return Dismantle("pods0") })
	if got := l.localnet(); got != "0" {
		t.Errorf("dismantled, it is %s", got)
	}
	if got := l.run("nft", "list", "ruleset"); got != "" {
		t.Errorf("dismantled, and left:\n%s", got)
	}
}

// TestLocalnetFlushed has a flush noticed before anybody mends it.
func TestLocalnetFlushed(t *testing.T) {
	for _, edit := range []string{
		"flush ruleset", "delete table inet tinylet", "flush chain inet tinylet guard", "insert rule inet tinylet guard accept",
		"add table inet tinylet { flags dormant; }",
	} {
		t.Run(edit, func(t *testing.T) {
			l := newLab(t, func(c *cni.Config) { c.Ranges = []ipam.Range{{Prefix: prefix(podsV4)}} })
			l.must(l.net.Ensure)
			told, ended := make(chan struct{}, 1024), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				ended <- netns.Do(l.host, func() error { return Watch(ctx, "pods0", func() { told <- struct{}{} }) })
			}()
			for heard := false; !heard; { // it listens
				l.run("nft", "add rule inet tinylet output counter")
				select {
				case <-told:
					heard = true
				case <-time.After(50 * time.Millisecond):
				}
			}
			if got := l.localnet(); got != "1" {
				t.Fatalf("a change of other rules has made it %s", got)
			}
			l.run("nft", edit)
			for l.localnet() != "0" {
				time.Sleep(5 * time.Millisecond) // until the test's own deadline
			}
			l.must(l.net.Ensure)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
