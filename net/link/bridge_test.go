package link

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// global are the addresses of global scope, with whether each works.
func global(t testing.TB, h *Handle, index int) (all []string) {
	t.Helper()
	for _, a := range must(h.Addresses(index))(t) {
		if a.Global() {
			s := a.Prefix.String()
			if a.Tentative() {
				s += " tentative"
			}
			all = append(all, s)
		}
	}
	slices.Sort(all)
	return all
}

func TestCreateBridge(t *testing.T) {
	h, _ := opened(t)
	want := Bridge{Name: "br", Addresses: prefixes("10.1.0.1/24")}
	for _, addresses := range [][]string{nil, {"10.1.0.1/24"}} {
		if err := h.CreateBridge(want); err != nil {
			t.Fatal(err)
		}
		l := must(h.Link("br"))(t)
		if got := global(t, h, l.Index); !l.Up || !bytes.Equal(l.MAC, StableMAC("br")) || !slices.Equal(got, addresses) {
			t.Errorf("want %v, got %+v with %v", addresses, l, got)
		}
		must(h.EnsureBridge(want))(t)
	}
	if err := h.CreateBridge(Bridge{Name: "lo"}); !errors.Is(err, ErrOtherKind) {
		t.Errorf("in the place of a device: %v", err)
	}
}

func TestBridge(t *testing.T) {
	h, ns := opened(t)
	steps := []struct {
		name string
		want Bridge
		have []string
	}{
		{"new", Bridge{Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64"), MTU: 1400}, []string{"10.1.0.1/24", "fd00:1::1/64"}},
		{"again", Bridge{Addresses: prefixes("10.1.0.1/24", "fd00:1::1/64"), MTU: 1400}, []string{"10.1.0.1/24", "fd00:1::1/64"}},
		{"other lengths", Bridge{Addresses: prefixes("10.1.0.1/16", "fd00:1::1/80")}, []string{"10.1.0.1/16", "fd00:1::1/80"}},
		{"promiscuous", Bridge{Promiscuous: true, MTU: 1280}, nil},
		{"two of a prefix", Bridge{Addresses: prefixes("10.2.0.1/24", "10.2.0.2/24")}, []string{"10.2.0.1/24", "10.2.0.2/24"}},
		// The kernel removes the second along with the first.
		{"the second", Bridge{Addresses: prefixes("10.2.0.2/24")}, []string{"10.2.0.2/24"}},
		{"another MAC", Bridge{Addresses: prefixes("192.168.7.1/32")}, []string{"192.168.7.1/32"}},
	}
	for _, s := range steps {
		s.want.Name = "br"
		if s.name == "another MAC" {
			asked(t, ns, "ip", "link", "set", "dev", "br", "address", "02:01:01:01:01:01")
		}
		l, err := h.EnsureBridge(s.want)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if l.Kind != "bridge" || !l.Up || l.Promiscuous != s.want.Promiscuous || !bytes.Equal(l.MAC, StableMAC("br")) ||
			s.want.MTU != 0 && l.MTU != s.want.MTU {
			t.Errorf("%s: %+v", s.name, l)
		}
		if diff := cmp.Diff(s.have, global(t, h, l.Index)); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
		if _, unchanged, err := h.reconcileBridge(s.want); err != nil || !unchanged {
			t.Errorf("%s: it was changed again, %v", s.name, err)
		}
	}
	has(t, asked(t, ns, "ip", "-d", "addr", "show", "dev", "br"), "bridge", StableMAC("br").String(), "inet 192.168.7.1/32", "UP")
}

func TestBridgeKeepsItsMAC(t *testing.T) {
	h, _ := opened(t)
	br := must(h.EnsureBridge(Bridge{Name: "br"}))(t)
	low := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	if err := h.CreateVeth(Veth{Name: "one", MAC: low, Bridge: br.Index, Peer: Peer{Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	if l := must(h.Link("br"))(t); !bytes.Equal(l.MAC, br.MAC) {
		t.Errorf("a port changed it from %s to %s", br.MAC, l.MAC)
	}
}

func TestBridgeRefuses(t *testing.T) {
	h, _ := opened(t)
	if err := h.CreateVeth(Veth{Name: "one", Peer: Peer{Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.EnsureBridge(Bridge{Name: "one"}); !errors.Is(err, ErrOtherKind) {
		t.Errorf("a veth: %v", err)
	}
	if _, err := h.EnsureBridge(Bridge{Name: "lo"}); !errors.Is(err, ErrOtherKind) {
		t.Errorf("the loopback: %v", err)
	}
	for _, b := range []Bridge{
		{Name: ""}, {Name: "a/b"}, {Name: "br", Addresses: []netip.Prefix{{}}},
		{Name: "br", Addresses: prefixes("0.0.0.0/0")}, {Name: "br", Addresses: prefixes("ff02::1/64")},
		{Name: "br", Addresses: prefixes("::ffff:10.0.0.1/120")}, {Name: "br", MTU: -1},
	} {
		if _, err := h.EnsureBridge(b); err == nil {
			t.Errorf("%+v was made", b)
		}
	}
	if _, err := h.Link("br"); !errors.Is(err, ErrNotFound) {
		t.Errorf("something is left: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	h, ns := opened(t)
	asked(t, ns, "ip", "link", "set", "lo", "up")
	asked(t, ns, "ip", "link", "add", "one", "type", "veth", "peer", "name", "two")
	asked(t, ns, "ip", "addr", "add", "10.0.0.1", "peer", "10.0.0.2/32", "dev", "one")
	asked(t, ns, "ip", "addr", "add", "fd00::1", "peer", "fd00::2/128", "dev", "one", "nodad")
	asked(t, ns, "ip", "addr", "add", "fd00::9/64", "dev", "one", "preferred_lft", "0")
	asked(t, ns, "ip", "link", "set", "one", "up")
	asked(t, ns, "ip", "link", "set", "two", "up")
	one := must(h.Link("one"))(t)
	found := map[string]Address{}
	for _, a := range must(h.Addresses(one.Index))(t) {
		found[a.Prefix.String()] = a
	}
	for _, want := range []string{"10.0.0.1/32", "fd00::1/128", "fd00::9/64"} {
		if a, ok := found[want]; !ok || !a.Global() || a.Index != one.Index || a.Temporary() {
			t.Errorf("%s: %+v", want, a)
		}
	}
	if a := found["fd00::9/64"]; !a.Deprecated() || !a.Tentative() {
		t.Errorf("%+v is to be deprecated and tentative", a)
	}
	if a := found["fd00::1/128"]; a.Deprecated() || a.Tentative() {
		t.Errorf("%+v is to be neither", a)
	}
	scopes := map[uint8]int{}
	all := must(h.Addresses(0))(t)
	for _, a := range all {
		scopes[a.Scope]++
	}
	if scopes[unix.RT_SCOPE_HOST] != 2 || scopes[unix.RT_SCOPE_LINK] == 0 || scopes[unix.RT_SCOPE_UNIVERSE] != 3 {
		t.Errorf("scopes %v of %+v", scopes, all)
	}
	if all, err := h.Addresses(4242); err != nil || len(all) != 0 {
		t.Errorf("of a link that is not there: %v, %v", all, err)
	}
}
