package link

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// listenIn returns a Monitor of a namespace.
func listenIn(t testing.TB, ns *os.File) (m *Monitor) {
	t.Helper()
	if err := netns.Do(ns, func() (err error) {
		m, err = Listen()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

// heard runs a Monitor that ignores the bridge and its ports, and of the bridge "pods"
// the carrier. The function
// says whether anything was told since it was last called; if something should
// be, it waits for that, and until no more comes: the kernel tells of carriers
// when it has the time.
func heard(t *testing.T, ns *os.File) func(want bool) bool {
	t.Helper()
	m := listenIn(t, ns)
	ctx, cancel := context.WithCancel(t.Context())
	var told atomic.Int64
	ended := make(chan error, 1)
	ignore := Ignore{
		Link:  func(l Link) bool { return l.Kind == "veth" && l.Alias != "up" && l.Name != "eth0" || l.Name == "br" },
		Ports: func(l Link) bool { return l.Name == "pods" },
	}
	go func() { ended <- m.Run(ctx, ignore, func() { told.Add(1) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(want bool) bool {
		for range 100 {
			if !want || told.Load() != 0 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		any := false
		for {
			time.Sleep(150 * time.Millisecond) // what is not told cannot be waited for
			if told.Swap(0) == 0 {
				return any
			}
			any = true
		}
	}
}

func TestMonitor(t *testing.T) {
	h, ns := opened(t)
	peer := nstest.New(t)
	p := must(OpenIn(peer))(t)
	defer p.Close()
	must(h.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(t)
	if err := h.CreateVeth(Veth{Name: "eth0", Peer: Peer{Name: "peth0", NS: peer}}); err != nil {
		t.Fatal(err)
	}
	asked(t, peer, "ip", "link", "set", "peth0", "up")
	asked(t, ns, "ip", "addr", "add", "192.0.2.10/24", "dev", "eth0")
	told := heard(t, ns)
	asked(t, ns, "ip", "route", "add", "default", "via", "192.0.2.1", "proto", "dhcp")
	told(true)
	for _, c := range []struct {
		name    string
		command string
		ns      *os.File
		want    bool
	}{
		{"the link loses its carrier", "ip link set peth0 down", peer, true},
		{"it is back", "ip link set peth0 up", peer, true},
		{"the link goes down", "ip link set eth0 down", ns, true},
		{"and up", "ip link set eth0 up", ns, true},
		{"the same default route again, which went with the link", "ip route add default via 192.0.2.1 proto dhcp", ns, true},
		{"the same again", "ip route replace default via 192.0.2.1 proto dhcp", ns, false},
		{"another gateway", "ip route replace default via 192.0.2.2 proto dhcp", ns, true},
		{"the first again", "ip route replace default via 192.0.2.1 proto dhcp", ns, true},
		{"a route elsewhere", "ip route add 203.0.113.0/24 via 192.0.2.3", ns, false},
		{"a default route of another table", "ip route add default via 192.0.2.3 table 77", ns, false},
		{"a new address", "ip addr add 192.0.2.11/24 dev eth0 valid_lft 1000 preferred_lft 1000", ns, true},
		{"a longer life", "ip addr change 192.0.2.11/24 dev eth0 valid_lft 2000 preferred_lft 2000", ns, false},
		{"no address", "ip addr del 192.0.2.11/24 dev eth0", ns, true},
		{"an IPv6 address", "ip addr add 2001:db8::10/64 dev eth0 nodad valid_lft 1000 preferred_lft 1000", ns, true},
		{"its longer life", "ip addr change 2001:db8::10/64 dev eth0 nodad valid_lft 2000 preferred_lft 2000", ns, false},
		{"it is deprecated", "ip addr change 2001:db8::10/64 dev eth0 nodad valid_lft 2000 preferred_lft 0", ns, true},
		{"an IPv6 default route", "ip -6 route add default via 2001:db8::1 dev eth0", ns, true},
		{"the route goes", "ip route del default", ns, true},
		{"a neighbour", "ip neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev eth0", ns, false},
		{"an address of the bridge", "ip addr add 10.1.0.2/24 dev br", ns, false},
		{"an address of the loopback", "ip addr add 10.99.0.1/32 dev lo", ns, false},
		{"a new link", "ip link add up0 type bridge", ns, true},
		{"another name", "ip link set up0 name up1", ns, true},
		{"a link goes", "ip link del up1", ns, true},
		{"the uplink goes", "ip link del eth0", ns, true},
	} {
		asked(t, c.ns, "sh", "-c", c.command)
		if got := told(c.want); got != c.want {
			t.Errorf("%s: told %v, want %v", c.name, got, c.want)
		}
	}
}

func TestMonitorIsSilentAboutPods(t *testing.T) {
	h, ns := opened(t)
	br := must(h.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(t)
	told := heard(t, ns)
	if told(false) {
		t.Error("told of nothing")
	}
	for range 5 {
		inside, podNS := opened(t)
		if err := h.CreateVeth(Veth{Name: "one", Alias: "a pod", Hairpin: true, Bridge: br.Index, Peer: Peer{Name: "eth0", NS: podNS}}); err != nil {
			t.Fatal(err)
		}
		must(inside.Configure(usual()))(t)
		reaches(t, podNS, ns, "10.1.0.1")
		reaches(t, podNS, ns, "fd00:1::1")
		if err := h.Shape(must(h.Link("one"))(t).Index, Rate{1e6, 1e6}); err != nil {
			t.Fatal(err)
		}
		if err := h.DeleteLink("one"); err != nil {
			t.Fatal(err)
		}
	}
	if told(false) {
		t.Error("told of pods")
	}
}

// TestMonitorIgnoresPorts: a bridge gets its carrier and MTU with its first port and loses
// them with the last one. Where ports are ignored that is no change, but its state is.
func TestMonitorIgnoresPorts(t *testing.T) {
	h, ns := opened(t)
	pods := must(h.EnsureBridge(Bridge{Name: "pods", Addresses: prefixes("10.1.0.1/24")}))(t)
	other := must(h.EnsureBridge(Bridge{Name: "other", Addresses: prefixes("10.2.0.1/24")}))(t)
	told := heard(t, ns)
	told(false)
	port := func(bridge Link) {
		t.Helper()
		inside, podNS := opened(t)
		if err := h.CreateVeth(Veth{Name: "one", Alias: "a pod", MTU: 1400, Bridge: bridge.Index, Peer: Peer{Name: "eth0", NS: podNS}}); err != nil {
			t.Fatal(err)
		}
		must(inside.Configure(usual()))(t)
		for range 100 {
			if must(h.Link(bridge.Name))(t).Running {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := h.DeleteLink("one"); err != nil {
			t.Fatal(err)
		}
	}
	if port(pods); told(false) {
		t.Error("the carrier of a bridge was told that is to be ignored")
	}
	if port(other); !told(true) {
		t.Error("the carrier of another bridge was not told")
	}
	if asked(t, ns, "ip", "link", "set", "pods", "down"); !told(true) {
		t.Error("the bridge went down and that was not told")
	}
}

// What happens between Listen and Run is told.
func TestMonitorHearsFromListenOn(t *testing.T) {
	h, ns := opened(t)
	m := listenIn(t, ns)
	must(h.EnsureBridge(Bridge{Name: "br"}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	told := false
	if err := m.Run(ctx, Ignore{}, func() { told = true; cancel() }); err != nil || !told {
		t.Errorf("told %v, %v", told, err)
	}
}

// TestMonitorCloses closes a Monitor while notifications are pending: no goroutine is
// left.
func TestMonitorCloses(t *testing.T) {
	h, ns := opened(t)
	before := runtime.NumGoroutine()
	for range 20 {
		m := listenIn(t, ns)
		must(h.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(t)
		if err := h.DeleteLink("br"); err != nil {
			t.Fatal(err)
		}
		m.Close()
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left", runtime.NumGoroutine()-before)
}

// TestMonitorOverrun: more notifications than the socket's buffer holds are reported
// once, and those after them as usual.
func TestMonitorOverrun(t *testing.T) {
	h, ns := opened(t)
	m := listenIn(t, ns)
	for i := range 500 {
		must(h.EnsureBridge(Bridge{Name: "pods", MTU: 1400 + i}))(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	told := 0
	ignore := Ignore{Link: func(l Link) bool { return l.Name == "pods" }}
	err := m.Run(ctx, ignore, func() {
		if told++; told > 1 {
			cancel()
			return
		}
		if _, err := h.EnsureBridge(Bridge{Name: "other"}); err != nil {
			t.Error(err)
		}
	})
	if err != nil || told != 2 {
		t.Errorf("told %d times, %v", told, err)
	}
}

// TestWatchRemovedRoutes: routes of the protocol that others remove are reported, and an
// overflow of the socket's buffer.
func TestWatchRemovedRoutes(t *testing.T) {
	h, ns := opened(t)
	br := must(h.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24")}))(t)
	route := func(protocol uint8) Route {
		return Route{Dst: netip.MustParsePrefix("10.2.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.2"), Link: br.Index, Protocol: protocol}
	}
	addRemove := func(protocol uint8) {
		t.Helper()
		if err := errors.Join(h.AddRoute(route(protocol)), h.DeleteRoute(route(protocol))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	told, free := make(chan struct{}, 1024), make(chan struct{}, 1024)
	ended := make(chan error, 1)
	go func() {
		ended <- netns.Do(ns, func() error {
			return WatchRemovedRoutes(ctx, 116, func() {
				told <- struct{}{}
				<-free
			})
		})
	}()
	heard := func(limit time.Duration) bool {
		select {
		case <-told:
			return true
		case <-time.After(limit):
			return false
		}
	}
	// It watches once a removal is reported.
	for try := 0; ; try++ {
		if addRemove(116); heard(100 * time.Millisecond) {
			break
		}
		if try == 100 {
			t.Fatal("a removed route was not reported")
		}
	}
	for range 1000 { // more than the buffer holds, while told blocks
		addRemove(5)
	}
	free <- struct{}{}
	if !heard(10 * time.Second) {
		t.Error("an overflow was not reported")
	}
	free <- struct{}{}
	if addRemove(5); heard(300 * time.Millisecond) {
		t.Error("a route of another protocol was reported")
	}
	if addRemove(116); !heard(10 * time.Second) {
		t.Error("a route that was removed after an overflow was not reported")
	}
	free <- struct{}{}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// FuzzSeen parses notifications of the kernel with changed bytes between the header of
// the message and its attributes, and those cut short.
func FuzzSeen(f *testing.F) {
	h, ns := opened(f)
	m := listenIn(f, ns)
	br := must(h.EnsureBridge(Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64")}))(f)
	if err := h.AddRoute(Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.1.0.2"), Link: br.Index}); err != nil {
		f.Fatal(err)
	}
	kinds := map[uint16]bool{}
	for !kinds[unix.RTM_NEWROUTE] {
		messages, _, err := m.socket.Receive()
		if err != nil {
			f.Fatal(err)
		}
		for _, message := range messages {
			kinds[message.Header.Type] = true
			f.Add(message.Header.Type, message.Data, uint16(len(message.Data)))
		}
	}
	m.Close()
	f.Fuzz(func(t *testing.T, kind uint16, payload []byte, length uint16) {
		if kind == unix.RTM_NEWLINK || kind == unix.RTM_DELLINK {
			return // the library parses links, and trusts the kernel
		}
		payload = payload[:min(len(payload)&^3, int(length)&^3)]
		s := newSeen(Ignore{}, nil)
		if s.message(kind, payload); kind&1 == 0 && s.message(kind, payload) {
			t.Error("the same was reported twice")
		}
	})
}
