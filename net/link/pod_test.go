package link

import (
	"errors"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// pod is a namespace with eth0 at a bridge of another.
func pod(t testing.TB) (host, inside *Handle, hostNS, ns *os.File) {
	t.Helper()
	host, hostNS = opened(t)
	inside, ns = opened(t)
	br := must(host.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(t)
	if err := host.CreateVeth(Veth{Name: "one", Bridge: br.Index, Hairpin: true, Peer: Peer{Name: "eth0", NS: ns}}); err != nil {
		t.Fatal(err)
	}
	return host, inside, hostNS, ns
}

func usual() Inside {
	return Inside{
		Interface: "eth0",
		Addresses: prefixes("10.1.0.7/24", "fd00:1::7/64"),
		Gateways:  []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:1::1")},
	}
}

func TestConfigure(t *testing.T) {
	_, h, hostNS, ns := pod(t)
	in := usual()
	for i := range 3 {
		l, err := h.Configure(in)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if l.Name != "eth0" || !l.Up || l.MAC == nil {
			t.Errorf("%+v", l)
		}
		has(t, asked(t, ns, "ip", "route"), "default via 10.1.0.1 dev eth0")
		has(t, asked(t, ns, "ip", "-6", "route"), "default via fd00:1::1 dev eth0")
		has(t, asked(t, ns, "ip", "addr"), "inet 10.1.0.7/24 brd 10.1.0.255", "inet6 fd00:1::7/64 scope global nodad", "inet 127.0.0.1/8")
		switch i {
		case 0:
			reaches(t, ns, hostNS, "10.1.0.1")
			reaches(t, ns, hostNS, "fd00:1::1")
		case 1: // what a call that was killed has not done
			asked(t, ns, "ip", "route", "del", "default")
			asked(t, ns, "ip", "addr", "del", "fd00:1::7/64", "dev", "eth0")
		}
	}
	if got := global(t, h, must(h.Link("eth0"))(t).Index); !slices.Equal(got, []string{"10.1.0.7/24", "fd00:1::7/64"}) {
		t.Errorf("addresses %v", got)
	}
}

// Gateways that no prefix has, as where pods are routed rather than bridged.
func TestConfigureOnLink(t *testing.T) {
	_, h, _, ns := pod(t)
	in := Inside{
		Interface: "eth0",
		Addresses: prefixes("10.1.0.7/32", "fd00:1::7/128"),
		Gateways:  []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1%eth0")},
	}
	for range 2 {
		if _, err := h.Configure(in); err != nil {
			t.Fatal(err)
		}
	}
	has(t, asked(t, ns, "ip", "route"), "default via 169.254.1.1 dev eth0 onlink")
	has(t, asked(t, ns, "ip", "-6", "route"), "default via fe80::1 dev eth0")
}

// reaches sends from one namespace to an address of another at once, and waits
// for it.
func reaches(t *testing.T, from, to *os.File, address string) {
	t.Helper()
	var server net.PacketConn
	if err := netns.Do(to, func() (err error) {
		server, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := netns.Do(from, func() error {
		c, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := server.ReadFrom(make([]byte, 16)); err != nil || n != 5 {
		t.Errorf("%s was sent %d bytes, %v", address, n, err)
	}
}

func TestConfigureRefuses(t *testing.T) {
	_, h, _, ns := pod(t)
	if _, err := h.Configure(Inside{Interface: "eth9"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an interface that is not there: %v", err)
	}
	for _, in := range []Inside{
		{Interface: "eth0", Addresses: []netip.Prefix{{}}},
		{Interface: "eth0", Gateways: []netip.Addr{{}}},
		{Interface: "eth0", Gateways: []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}},
	} {
		if _, err := h.Configure(in); err == nil {
			t.Errorf("%+v was taken", in)
		}
	}
	for _, r := range []Route{
		{}, {Dst: netip.MustParsePrefix("10.0.0.1/8")},
		{Dst: netip.MustParsePrefix("fd00::/8"), Gateway: netip.MustParseAddr("10.0.0.1")},
		{Dst: netip.MustParsePrefix("10.0.0.0/8"), Link: 1, Metric: math.MaxUint32},
	} {
		if err := h.AddRoute(r); err == nil {
			t.Errorf("%+v was added", r)
		}
	}
	// The kernel has an IPv6 address once; with another length it is another.
	if _, err := h.Configure(Inside{Interface: "eth0", Addresses: prefixes("fd00:1::7/64")}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Configure(Inside{Interface: "eth0", Addresses: prefixes("fd00:1::7/80")}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an address of another length: %v", err)
	}
	asked(t, ns, "ip", "route", "add", "default", "dev", "eth0")
	_, err := h.Configure(Inside{Interface: "eth0", Addresses: prefixes("10.1.0.7/24"), Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1")}})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("another default route: %v", err)
	}
	has(t, err.Error(), "configure eth0: route 0.0.0.0/0 via 10.1.0.1: ")
}

func TestRoutes(t *testing.T) {
	h, ns := opened(t)
	br := must(h.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(t)
	route := func(dst, gateway string) Route {
		r := Route{Dst: netip.MustParsePrefix(dst), Link: br.Index, Protocol: unix.RTPROT_STATIC, Type: unix.RTN_UNICAST, Dead: true}
		if gateway != "" {
			r.Gateway = netip.MustParseAddr(gateway)
		}
		return r
	}
	for _, r := range []Route{
		route("10.2.0.0/16", "10.1.0.2"), route("fd00:2::/64", "fd00:1::2"), route("10.3.0.0/16", "fd00:1::3"),
		route("10.4.0.0/16", ""), route("0.0.0.0/0", "10.1.0.2"), route("::/0", "fd00:1::2"),
	} {
		if r.Dst.Addr().Is6() {
			r.Metric = 512
		} else if r.Dst.Bits() == 16 {
			r.Source = netip.MustParseAddr("10.1.0.1")
		}
		if err := h.AddRoute(r); err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		if err := h.AddRoute(r); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s again: %v", r, err)
		}
		all := must(h.Routes(RouteFilter{Protocol: unix.RTPROT_STATIC}))(t)
		// A bridge without ports has no carrier, which the kernel tells in IPv4
		// and, for routes that are new, not in IPv6.
		if len(all) == 1 {
			r.Dead, r.OnLink = all[0].Dead, all[0].OnLink
		}
		if diff := cmp.Diff([]Route{r}, all, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", r, diff)
		}
		for range 2 {
			if err := h.DeleteRoute(r); err != nil {
				t.Errorf("%s: %v", r, err)
			}
		}
	}
	if all := must(h.Routes(RouteFilter{Protocol: unix.RTPROT_STATIC}))(t); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
	asked(t, ns, "ip", "route", "add", "10.5.0.0/16", "via", "10.1.0.2", "proto", "static", "table", "4242")
	if all := must(h.Routes(RouteFilter{Protocol: unix.RTPROT_STATIC}))(t); len(all) != 0 {
		t.Errorf("of another table: %+v", all)
	}
	if err := h.AddRoute(Route{Dst: netip.MustParsePrefix("10.6.0.0/16"), Link: 4242}); !errors.Is(err, ErrNotFound) {
		t.Errorf("over a link that is not there: %v", err)
	}
	if err := h.DeleteRoute(Route{Dst: netip.MustParsePrefix("10.6.0.0/16"), Link: 4242}); err != nil {
		t.Errorf("over a link that is not there: %v", err)
	}
}

func TestMultipath(t *testing.T) {
	h, ns := opened(t)
	br := must(h.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(t)
	asked(t, ns, "ip", "route", "add", "default", "nexthop", "via", "10.1.0.2", "dev", "br", "nexthop", "via", "10.1.0.3", "dev", "br", "onlink")
	asked(t, ns, "ip", "-6", "route", "add", "default", "nexthop", "via", "fd00:1::2", "dev", "br", "nexthop", "via", "fd00:1::3", "dev", "br")
	var gateways []string
	for _, r := range must(h.Routes(RouteFilter{}))(t) {
		if r.Default() {
			gateways = append(gateways, r.Gateway.String())
			if r.Link != br.Index || r.OnLink != (r.Gateway.String() == "10.1.0.3") {
				t.Errorf("%+v", r)
			}
		}
	}
	if diff := cmp.Diff([]string{"10.1.0.2", "10.1.0.3", "fd00:1::2", "fd00:1::3"}, gateways); diff != "" {
		t.Error(diff)
	}
}

// wired is a link that has a carrier, with addresses.
func wired(t testing.TB, h *Handle, ns *os.File, name string, addresses ...string) Link {
	t.Helper()
	if err := h.CreateVeth(Veth{Name: name, Peer: Peer{Name: "p" + name}}); err != nil {
		t.Fatal(err)
	}
	asked(t, ns, "ip", "link", "set", "p"+name, "up")
	for _, a := range addresses {
		asked(t, ns, "ip", "addr", "add", a, "dev", name, "nodad")
	}
	return running(t, h, name)
}

// running waits for a carrier: the kernel sees to it when it has the time.
func running(t testing.TB, h *Handle, name string) Link {
	t.Helper()
	for range 100 {
		if l := must(h.Link(name))(t); l.Running {
			return l
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s has no carrier", name)
	return Link{}
}

func TestUplink(t *testing.T) {
	h, ns := opened(t)
	for _, v6 := range []bool{false, true} {
		if _, err := h.DefaultRoute(v6); !errors.Is(err, ErrNoRoute) {
			t.Errorf("no route: %v", err)
		}
	}
	if _, err := h.Uplink(); !errors.Is(err, ErrNoRoute) {
		t.Errorf("no uplink: %v", err)
	}
	wired(t, h, ns, "eth0", "192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64")
	wired(t, h, ns, "lte0", "198.51.100.9/30", "2001:db8:1::9/64")
	asked(t, ns, "ip", "addr", "add", "2001:db8::11/64", "dev", "eth0", "nodad", "preferred_lft", "0")
	expect := func(step, name, gateway4, gateway6 string, v4, v6 []string) {
		t.Helper()
		u, err := h.Uplink()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		got := []any{u.Link.Name, u.Gateway4.String(), u.Gateway6.String(), texts(u.V4), texts(u.V6)}
		if diff := cmp.Diff([]any{name, gateway4, gateway6, v4, v6}, got); diff != "" {
			t.Errorf("%s: %s", step, diff)
		}
	}
	asked(t, ns, "ip", "-6", "route", "add", "default", "via", "2001:db8:1::1", "metric", "700")
	expect("IPv6 alone", "lte0", "invalid IP", "2001:db8:1::1", []string{"198.51.100.9"}, []string{"2001:db8:1::9"})
	asked(t, ns, "ip", "route", "add", "default", "dev", "lte0", "metric", "600")
	asked(t, ns, "ip", "route", "add", "default", "via", "192.0.2.1", "metric", "100", "src", "192.0.2.11")
	asked(t, ns, "ip", "route", "add", "blackhole", "default", "metric", "1")
	expect("Ethernet", "eth0", "192.0.2.1", "invalid IP", []string{"192.0.2.11", "192.0.2.10"}, []string{"2001:db8::10"})
	asked(t, ns, "ip", "link", "set", "peth0", "down")
	expect("no carrier", "lte0", "invalid IP", "2001:db8:1::1", []string{"198.51.100.9"}, []string{"2001:db8:1::9"})
	asked(t, ns, "ip", "link", "set", "peth0", "up")
	running(t, h, "eth0")
	expect("carrier back", "eth0", "192.0.2.1", "invalid IP", []string{"192.0.2.11", "192.0.2.10"}, []string{"2001:db8::10"})
	if r, err := h.DefaultRoute(true); err != nil || r.Metric != 700 {
		t.Errorf("IPv6: %+v, %v", r, err)
	}
	if r, err := h.DefaultRoute(false); err != nil || r.Metric != 100 {
		t.Errorf("IPv4: %+v, %v", r, err)
	}
	asked(t, ns, "ip", "link", "set", "lte0", "down")
	asked(t, ns, "ip", "link", "set", "eth0", "down")
	if _, err := h.Uplink(); !errors.Is(err, ErrNoRoute) {
		t.Errorf("no uplink: %v", err)
	}
}

func texts(all []netip.Addr) (s []string) {
	for _, a := range all {
		s = append(s, a.String())
	}
	return s
}

func BenchmarkPod(b *testing.B) {
	host, _ := opened(b)
	ns := nstest.New(b)
	br := must(host.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(b)
	in := usual()
	var create, configure, remove time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if err := host.CreateVeth(Veth{Name: "one", Bridge: br.Index, Hairpin: true, Alias: "a pod", Peer: Peer{Name: "eth0", NS: ns}}); err != nil {
			b.Fatal(err)
		}
		made := time.Now()
		h, err := OpenIn(ns)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := h.Configure(in); err != nil {
			b.Fatal(err)
		}
		h.Close()
		configured := time.Now()
		if err := host.DeleteLink("one"); err != nil {
			b.Fatal(err)
		}
		create += made.Sub(start)
		configure += configured.Sub(made)
		remove += time.Since(configured)
	}
	b.ReportMetric(float64(create.Microseconds())/float64(b.N), "create-µs")
	b.ReportMetric(float64(configure.Microseconds())/float64(b.N), "configure-µs")
	b.ReportMetric(float64(remove.Microseconds())/float64(b.N), "delete-µs")
}

func BenchmarkUnchangedBridge(b *testing.B) {
	host, _ := opened(b)
	want := Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}
	must(host.EnsureBridge(want))(b)
	b.ReportAllocs()
	for b.Loop() {
		must(host.EnsureBridge(want))(b)
	}
}
