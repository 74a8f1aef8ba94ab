package link

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

// opened is a Handle of a new namespace.
func opened(t testing.TB) (*Handle, *os.File) {
	t.Helper()
	ns := nstest.New(t)
	h, err := OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, ns
}

// asked is what a program says in a namespace.
func asked(t testing.TB, ns *os.File, command ...string) string {
	t.Helper()
	program, err := exec.LookPath(command[0])
	if err != nil {
		t.Skipf("no witness: %v", err)
	}
	var out []byte
	if err := netns.Do(ns, func() (err error) {
		out, err = exec.Command(program, command[1:]...).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

func has(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in\n%s", p, text)
		}
	}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"eth0": true, "a": true, "veth0123456789a": true, "eth0.100": true, "...": true, "wän": true,
		"": false, "veth0123456789ab": false, ".": false, "..": false, "a/b": false, "a b": false,
		"a\tb": false, "a\x00": false, "a:b": false, "veth%d": false, "a\n": false, "\xa0": false, "\x7f": false,
	} {
		if err := ValidName(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
	h, _ := opened(t)
	if _, err := h.Link("a/b"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	if err := h.DeleteLink(""); err == nil {
		t.Error("a link without a name was deleted")
	}
}

func TestStableMAC(t *testing.T) {
	a, b := StableMAC("cni0"), StableMAC("cni1")
	if bytes.Equal(a, b) || !bytes.Equal(a, StableMAC("cni0")) || len(a) != 6 || a[0]&3 != 2 {
		t.Errorf("%s, %s", a, b)
	}
}

func TestLinks(t *testing.T) {
	h, ns := opened(t)
	peer := nstest.New(t)
	br := must(h.EnsureBridge(Bridge{Name: "br"}))(t)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	for i, name := range []string{"one", "two"} {
		v := Veth{Name: name, MTU: 1400, Alias: "of " + name, Peer: Peer{Name: "p" + name}}
		if i == 0 {
			v.Bridge, v.Hairpin, v.MAC, v.Peer.NS = br.Index, true, mac, peer
		}
		if err := h.CreateVeth(v); err != nil {
			t.Fatal(err)
		}
	}
	one, two := must(h.Link("one"))(t), must(h.Link("two"))(t)
	want := Link{
		Index: one.Index, Name: "one", Kind: "veth", Alias: "of one", MTU: 1400, MAC: mac,
		Master: br.Index, Up: true,
	}
	if got := one; !cmp.Equal(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
	if hairpin := must(h.Hairpin(one.Index))(t); !hairpin {
		t.Error("hairpin mode is off")
	}
	if two.Master != 0 {
		t.Errorf("read %+v", two)
	}
	if got := must(h.LinkByIndex(one.Index))(t); !cmp.Equal(got, one) {
		t.Errorf("by index %+v", got)
	}
	if all := must(h.Links())(t); len(all) != 5 {
		t.Errorf("all: %+v", all)
	}
	has(t, asked(t, ns, "ip", "-d", "link", "show", "dev", "one"),
		"alias of one", "mtu 1400", "hairpin on", "addrgenmode none", "master br", mac.String())
	for range 2 {
		if err := h.DeleteLink("one"); err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		second(h.Link("one")), second(h.LinkByIndex(one.Index)), second(h.LinkByIndex(0)),
		second(h.LinkByIndex(-1)),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("one that is gone: %v", err)
		}
	}
}

func TestSetDown(t *testing.T) {
	h, _ := opened(t)
	if err := h.CreateVeth(Veth{Name: "one", Peer: Peer{Name: "eth0", NS: nstest.New(t)}}); err != nil {
		t.Fatal(err)
	}
	if l := must(h.Link("one"))(t); !l.Up {
		t.Fatal("a new veth is down")
	}
	for range 2 {
		if err := h.SetDown("one"); err != nil {
			t.Fatal(err)
		}
		if l := must(h.Link("one"))(t); l.Up {
			t.Error("the link is up")
		}
	}
	if err := h.DeleteLink("one"); err != nil {
		t.Fatal(err)
	}
	if err := h.SetDown("one"); err != nil {
		t.Errorf("a link that is gone: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestVethErrors(t *testing.T) {
	h, ns := opened(t)
	peer := nstest.New(t)
	good := Veth{Name: "one", Alias: "mine", Peer: Peer{Name: "eth0", NS: peer}}
	if err := h.CreateVeth(good); err != nil {
		t.Fatal(err)
	}
	if err := h.DeleteLink("one"); err != nil {
		t.Fatal(err)
	}
	if err := h.CreateVeth(good); err != nil {
		t.Fatal(err)
	}
	other := good
	other.Alias = "another's"
	if err := h.CreateVeth(other); !errors.Is(err, ErrExists) || errors.Is(err, ErrPeerExists) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("the name is taken: %v", err)
	}
	if l := must(h.Link("one"))(t); l.Alias != "mine" {
		t.Errorf("a link that was there has alias %q", l.Alias)
	}
	other.Name = "two"
	if err := h.CreateVeth(other); !errors.Is(err, ErrPeerExists) || errors.Is(err, ErrExists) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("the peer's name is taken: %v", err)
	}
	other.Peer.Name, other.Bridge, other.Hairpin = "eth1", must(h.Link("lo"))(t).Index, true
	if err := h.CreateVeth(other); err == nil {
		t.Error("a port of the loopback")
	}
	// The kernel makes the pair, and then does not take what it should have.
	other.Bridge, other.Hairpin, other.Alias = 0, false, strings.Repeat("x", 255)
	if err := h.CreateVeth(other); err != nil {
		t.Errorf("the longest alias: %v", err)
	}
	if err := h.DeleteLink("two"); err != nil {
		t.Error(err)
	}
	for _, v := range []Veth{
		{Name: "", Peer: Peer{Name: "a"}}, {Name: "a", Peer: Peer{Name: "b/c"}},
		{Name: "a", Peer: Peer{Name: "b"}, Alias: strings.Repeat("x", 256)},
		{Name: "a", Peer: Peer{Name: "b"}, Hairpin: true}, {Name: "a", Peer: Peer{Name: "a"}},
		{Name: "a", Peer: Peer{Name: "b"}, MTU: -1}, {Name: "a", Peer: Peer{Name: "b"}, MAC: net.HardwareAddr{1}},
		{Name: "a", Peer: Peer{Name: "b"}, Bridge: 4242},
	} {
		if err := h.CreateVeth(v); err == nil {
			t.Errorf("%+v was made", v)
		}
	}
	if all := must(h.Links())(t); len(all) != 2 {
		t.Errorf("links %+v", all)
	}
	if out := asked(t, ns, "ip", "-o", "link"); strings.Count(out, "\n") != 2 {
		t.Errorf("links\n%s", out)
	}
}

// What fails after the pair was made takes it away again.
func TestVethUndone(t *testing.T) {
	h, _ := opened(t)
	v := Veth{Name: "one", Peer: Peer{Name: "two"}, Alias: strings.Repeat("x", 256)}
	if err := h.createVeth(v); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("the kernel took an alias of 256 bytes: %v", err)
	}
	if all := must(h.Links())(t); len(all) != 1 {
		t.Errorf("left: %+v", all)
	}
}

func TestHostSideSendsNothing(t *testing.T) {
	h, _ := opened(t)
	peer := nstest.New(t)
	if err := h.CreateVeth(Veth{Name: "one", Peer: Peer{Name: "eth0", NS: peer}}); err != nil {
		t.Fatal(err)
	}
	p := must(OpenIn(peer))(t)
	defer p.Close()
	if _, err := p.Configure(Inside{Interface: "eth0"}); err != nil {
		t.Fatal(err)
	}
	one := must(h.Link("one"))(t)
	if !one.Up || !one.Running {
		t.Errorf("%+v", one)
	}
	if all := must(h.Addresses(one.Index))(t); len(all) != 0 {
		t.Errorf("it has addresses %v", all)
	}
}

// The kernel has no IPv6 on a link with an MTU below 1280.
func TestNoIPv6(t *testing.T) {
	h, _ := opened(t)
	if err := h.CreateVeth(Veth{Name: "one", MTU: 1000, Alias: "a", Peer: Peer{Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	if l := must(h.Link("one"))(t); l.Alias != "a" || !l.Up {
		t.Errorf("%+v", l)
	}
}
