package routes

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/netns"
	"github.com/tinylet/tinylet/net/netns/nstest"
)

var _ Kernel = (*link.Handle)(nil)

// ip runs ip(8) in a namespace.
func ip(t *testing.T, ns *os.File, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the program ip is the witness of what the kernel has, and is not here")
	}
	var out []byte
	err := netns.Do(ns, func() (err error) {
		out, err = exec.Command("ip", args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
	return string(out)
}

// wired is a namespace with a link e0 to another, with addresses, and a bridge.
func wired(t *testing.T) (*os.File, *link.Handle) {
	t.Helper()
	ns := nstest.New(t)
	for _, line := range []string{
		"link add e0 type veth peer name e1", "link set e0 up", "link set e1 up",
		"addr add 192.168.0.1/24 dev e0", "addr add fd00::1/64 dev e0 nodad",
		"link add pods0 type bridge", "link set pods0 up", "addr add 10.244.0.1/24 dev pods0",
	} {
		ip(t, ns, strings.Fields(line)...)
	}
	h, err := link.OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return ns, h
}

// shown returns the routes that ip(8) lists with the protocol number of this
// package, in short.
func shown(t *testing.T, ns *os.File) string {
	t.Helper()
	var all []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(ip(t, ns, family, "route", "show", "proto", fmt.Sprint(Protocol))) {
			words := strings.Fields(line)
			all = append(all, strings.Join(words[:min(5, len(words))], " "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func TestSync(t *testing.T) {
	ns, k := wired(t)
	ip(t, ns, "route", "add", "10.9.0.0/24", "via", "192.168.0.99")
	ip(t, ns, "route", "add", "10.244.9.0/24", "via", "192.168.0.99")
	ip(t, ns, "route", "add", "10.244.8.0/24", "via", "192.168.0.8")
	before := ip(t, ns, "route")
	peers := map[listwatch.Key]peer{}
	put := func(name string, cidrs []string, ips ...string) {
		peers[listwatch.Key{Name: name}], _ = kept(node(name, cidrs, ips...))
	}
	look := func(fault string) []netip.Prefix {
		t.Helper()
		h, err := read(k, "pods0")
		if err != nil {
			t.Fatal(err)
		}
		w := plan(h, peers)
		there, _, err := sync(k, h.routes, w.routes)
		if (fault == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%v, want %q", err, fault)
		}
		return networks(there)
	}
	put("a", []string{"10.244.1.0/24", "fd00:244:1::/64"}, "192.168.0.2", "fd00::2")
	put("b", []string{"10.244.2.0/24"}, "192.168.0.3")
	put("c", []string{"10.244.3.0/24"}, "10.244.0.7") // on the pods' bridge
	want := "10.244.1.0/24 via 192.168.0.2 dev e0, 10.244.2.0/24 via 192.168.0.3 dev e0, fd00:244:1::/64 via fd00::2 dev e0"
	for range 2 {
		if direct := look(""); len(direct) != 3 || shown(t, ns) != want {
			t.Errorf("direct %v, routes %s", direct, shown(t, ns))
		}
	}
	// Somebody takes one away, a node gets another address, one goes.
	ip(t, ns, "route", "del", "10.244.1.0/24")
	put("a", []string{"10.244.1.0/24", "fd00:244:1::/64"}, "192.168.0.2", "fd00::22")
	delete(peers, listwatch.Key{Name: "b"})
	look("")
	if got := shown(t, ns); got != "10.244.1.0/24 via 192.168.0.2 dev e0, fd00:244:1::/64 via fd00::22 dev e0" {
		t.Errorf("routes %s", got)
	}
	// Others' routes stay, whether they lead the same way or not.
	put("d", []string{"10.244.9.0/24"}, "192.168.0.9")
	put("e", []string{"10.244.8.0/24"}, "192.168.0.8")
	direct := look("ip route del 10.244.9.0/24")
	if text := fmt.Sprint(direct); text != "[10.244.1.0/24 10.244.8.0/24 fd00:244:1::/64]" {
		t.Errorf("direct %s", text)
	}
	if err := Clear(func() (Kernel, error) { return link.OpenIn(ns) }); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, ns); got != "" {
		t.Errorf("left: %s", got)
	}
	if after := ip(t, ns, "route"); after != before {
		t.Errorf("others' routes were\n%s\nand are\n%s", before, after)
	}
}

func TestLinkGoes(t *testing.T) {
	ns, k := wired(t)
	peers := map[listwatch.Key]peer{}
	peers[listwatch.Key{Name: "a"}], _ = kept(node("a", []string{"10.244.1.0/24"}, "192.168.0.2"))
	routes := func() int {
		h, err := read(k, "pods0")
		if err != nil {
			t.Fatal(err)
		}
		there, _, err := sync(k, h.routes, plan(h, peers).routes)
		if err != nil {
			t.Error(err)
		}
		return len(there)
	}
	if n := routes(); n != 1 {
		t.Errorf("%d routes", n)
	}
	ip(t, ns, "link", "set", "e1", "down") // no carrier
	if n := routes(); n != 1 {
		t.Errorf("%d routes without a carrier", n)
	}
	ip(t, ns, "link", "set", "e0", "down")
	if n := routes(); n != 0 || shown(t, ns) != "" {
		t.Errorf("%d routes over a link that is down: %s", n, shown(t, ns))
	}
	ip(t, ns, "link", "set", "e0", "up")
	if n := routes(); n != 1 || shown(t, ns) == "" {
		t.Errorf("%d routes over a link that is up again: %s", n, shown(t, ns))
	}
	ip(t, ns, "addr", "flush", "dev", "e0")
	if n := routes(); n != 0 || shown(t, ns) != "" {
		t.Errorf("%d routes without an address: %s", n, shown(t, ns))
	}
}

// TestOthersRoutes: other nodes claim networks to which there are routes of others,
// and have impossible gateways.
func TestOthersRoutes(t *testing.T) {
	ns, k := wired(t)
	ip(t, ns, "route", "add", "10.244.7.0/24", "via", "192.168.0.99", "metric", "50") // of a tunnel's, say
	ip(t, ns, "route", "add", "10.245.0.0/16", "dev", "e0", "metric", "50")
	ip(t, ns, "route", "add", "0.0.0.0/1", "dev", "e0")
	ip(t, ns, "route", "add", "blackhole", "10.0.0.0/8")
	before := ip(t, ns, "route")
	for _, row := range []struct{ name, network, gateway, fault, err string }{
		{"another metric", "10.244.7.0/24", "192.168.0.2", "", "add route to 10.244.7.0/24: another route exists"},
		{"behind a link", "10.245.3.0/24", "192.168.0.2", "it overlaps 10.245.0.0/16 of this node", ""},
		{"broadcast", "10.244.1.0/24", "192.168.0.255", "invalid argument", ""},
	} {
		h, err := read(k, "pods0")
		if err != nil {
			t.Fatal(err)
		}
		peers := map[listwatch.Key]peer{}
		peers[listwatch.Key{Name: "a"}], _ = kept(node("a", []string{row.network}, row.gateway))
		peers[listwatch.Key{Name: "b"}], _ = kept(node("b", []string{"10.244.2.0/24"}, "192.168.0.3"))
		w := plan(h, peers)
		if text := fmt.Sprint(h.pods); text != "[10.244.0.1]" {
			t.Errorf("addresses of the pods' bridge: %s", text)
		}
		there, faults, err := sync(k, h.routes, w.routes)
		if text := strings.Join(append(w.faults, faults...), "; "); (row.fault == "") != (text == "") || !strings.Contains(text, row.fault) {
			t.Errorf("%s: faults %q, want %q", row.name, text, row.fault)
		}
		if (row.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %v, want %q", row.name, err, row.err)
		}
		if got := shown(t, ns); len(there) != 1 || got != "10.244.2.0/24 via 192.168.0.3 dev e0" {
			t.Errorf("%s: %v, routes %s", row.name, there, got)
		}
		if err := Clear(func() (Kernel, error) { return link.OpenIn(ns) }); err != nil {
			t.Fatal(err)
		}
	}
	if after := ip(t, ns, "route"); after != before {
		t.Errorf("others' routes were\n%s\nand are\n%s", before, after)
	}
}

// TestTakenAway: others delete routes.
func TestTakenAway(t *testing.T) {
	ns, _ := wired(t)
	api := apiservertest.New()
	api.Put(node("a", []string{"10.244.1.0/24", "fd00:1::/64"}, "192.168.0.2", "fd00::2"))
	log := slog.New(slog.DiscardHandler)
	r, err := New(Config{
		API: api, NodeName: "own", Bridge: "pods0", Open: func() (Kernel, error) { return link.OpenIn(ns) },
		Server: func() []netip.Addr { return nil }, Direct: func([]netip.Prefix) {}, Events: event.NewRecorder(log), Log: log,
		File: filepath.Join(t.TempDir(), "nodes.json"),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.watch = func(ctx context.Context, notify func()) error {
		return netns.Do(ns, func() error { return watch(ctx, notify) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	const want = "10.244.1.0/24 via 192.168.0.2 dev e0, fd00:1::/64 via fd00::2 dev e0"
	eventually := func() {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); shown(t, ns) != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("routes %s", shown(t, ns))
			}
		}
	}
	eventually()
	for range 2 {
		ip(t, ns, "route", "flush", "proto", fmt.Sprint(Protocol))
		eventually()
		ip(t, ns, "-6", "route", "flush", "proto", fmt.Sprint(Protocol))
		eventually()
	}
}
