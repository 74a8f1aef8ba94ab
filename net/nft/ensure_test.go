package nft

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what the nft program lists with a file.
func golden(t *testing.T, ns *os.File, name string) {
	t.Helper()
	got := run(t, ns, "nft", "list", "table", "inet", tableName)
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

func somePorts(t testing.TB) []Port {
	return []Port{
		port(t, "", TCP, 8080, "10.244.1.2:80", "shop/web"),
		port(t, "", SCTP, 8080, "[fd00:244:1::2]:80", "shop/web"),
		port(t, "192.0.2.1", UDP, 53, "10.244.1.3:5353", "kube-system/dns"),
		port(t, "2001:db8::1", UDP, 53, "[fd00:244:1::3]:5353", "kube-system/dns"),
	}
}

func listed(t testing.TB, table *Table) []Port {
	t.Helper()
	all, err := table.Ports()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var anyOrder = []cmp.Option{
	cmpopts.SortSlices(func(a, b Port) bool { return a.compare(b) < 0 }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func same(t testing.TB, got, want []Port) {
	t.Helper()
	if d := cmp.Diff(want, got, anyOrder...); d != "" {
		t.Errorf("ports (-want +got):\n%s", d)
	}
}

func ensure(t testing.TB, table *Table, b Base, want bool) {
	t.Helper()
	if changed, err := table.Ensure(b, nil); err != nil || changed != want {
		t.Fatalf("changed %v, %v", changed, err)
	}
}

func TestGolden(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	add(t, table, somePorts(t)...)
	golden(t, ns, "both.nft")
	ensure(t, table, Base{Bridge: "pods0", Pods: prefixes("10.244.1.0/24")}, true)
	golden(t, ns, "routed.nft")
}

func TestEnsure(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	if err := table.Verify(both); !errors.Is(err, ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
	ensure(t, table, both, true)
	add(t, table, somePorts(t)...)
	shuffled := both
	shuffled.Pods = slices.Clone(both.Pods)
	slices.Reverse(shuffled.Pods)
	shuffled.Direct = append(prefixes("10.244.2.9/32"), both.Direct...)
	for _, step := range []struct {
		name    string
		edit    string
		base    Base
		changed bool
	}{
		{name: "again", base: both},
		{name: "in another order, with a network in another", base: shuffled},
		{name: "without masquerade", base: Base{Bridge: "pods0", Pods: both.Pods}, changed: true},
		{name: "another bridge", base: Base{Bridge: "pods1", Pods: both.Pods}, changed: true},
		{name: "back", base: both, changed: true},
		{name: "flushed", edit: "flush table inet tinylet", base: both, changed: true},
		{name: "a chain of another kind", edit: "flush table inet tinylet; delete chain inet tinylet output; add chain inet tinylet output { type filter hook input priority 7; }", base: both, changed: true},
		{name: "a map of another kind", edit: "flush table inet tinylet; delete map inet tinylet ports6; add map inet tinylet ports6 { type ipv4_addr : ipv4_addr; }", base: both, changed: true},
		{name: "of another version", edit: "flush chain inet tinylet guard; add rule inet tinylet guard accept comment \"rules 0-1234\"", base: both, changed: true},
	} {
		t.Run(step.name, func(t *testing.T) {
			if step.edit != "" {
				run(t, ns, "nft", step.edit)
			}
			ensure(t, table, step.base, step.changed)
			if err := table.Verify(step.base); err != nil {
				t.Error(err)
			}
			want := somePorts(t)
			if step.name == "a map of another kind" {
				want = slices.Delete(want, 1, 2)
			}
			same(t, listed(t, table), want)
			add(t, table, somePorts(t)...)
		})
	}
	run(t, ns, "nft", "flush ruleset")
	if err := table.AddPorts(somePorts(t)); !errors.Is(err, ErrNoTable) {
		t.Errorf("ports without a table: %v", err)
	}
	ensure(t, table, both, true)
	for range 2 {
		if err := table.Delete(); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(t, ns, "nft", "list", "ruleset"); got != "" {
		t.Errorf("deleted, and left\n%s", got)
	}
	same(t, listed(t, table), nil)
}

func TestVerifyMend(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	add(t, table, somePorts(t)...)
	before := run(t, ns, "nft", "list", "table", "inet", tableName)
	for _, edit := range []string{
		"add table inet tinylet { flags dormant; }",
		"add rule inet tinylet guard accept",
		"insert rule inet tinylet leaving counter",
		"flush chain inet tinylet host-ports",
		"flush chain inet tinylet host-ports; delete map inet tinylet ports6at",
		"flush chain inet tinylet host-ports; delete map inet tinylet ports6at; add map inet tinylet ports6at { type ipv6_addr : ipv6_addr; }",
		"add chain inet tinylet guard { policy drop; }",
		"add chain inet tinylet spy { type filter hook input priority 0; policy drop; }",
		"flush chain inet tinylet output; delete chain inet tinylet output",
		"flush chain inet tinylet prerouting; add rule inet tinylet prerouting fib saddr type local jump host-ports comment \"host ports\"",
		"flush table inet tinylet",
	} {
		t.Run(edit, func(t *testing.T) {
			run(t, ns, "nft", edit)
			err := table.Verify(both)
			var edited *Edited
			if !errors.As(err, &edited) {
				t.Errorf("not seen: %v", err)
			}
			t.Log(err)
			if err := table.Repair(both, nil); err != nil {
				t.Fatal(err)
			}
			if err := table.Verify(both); err != nil {
				t.Errorf("mended: %v", err)
			}
			want := somePorts(t)
			if strings.Contains(edit, "delete map inet tinylet ports6at") {
				want = want[:3]
			}
			same(t, listed(t, table), want)
			add(t, table, somePorts(t)...)
			if d := cmp.Diff(before, run(t, ns, "nft", "list", "table", "inet", tableName)); d != "" {
				t.Errorf("mended (-before +after):\n%s", d)
			}
		})
	}
}

// foreign are tables as firewalld, Docker and iptables-nft make them.
const foreign = `
table ip nat {
	chain DOCKER {
		iifname "docker0" counter packets 0 bytes 0 return
	}
	chain PREROUTING {
		type nat hook prerouting priority dstnat; policy accept;
		fib daddr type local counter packets 0 bytes 0 jump DOCKER
	}
	chain POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
		oifname != "docker0" ip saddr 172.17.0.0/16 masquerade
	}
}
table ip tinylet {
	chain guard {
		type filter hook prerouting priority raw; policy accept;
		accept comment "another family"
	}
}
table inet firewalld {
	map ports4 {
		type ipv4_addr : ipv4_addr
		elements = { 1.2.3.4 : 5.6.7.8 }
	}
	chain guard {
		type filter hook prerouting priority 10; policy accept;
		ct state established,related accept
	}
}
table inet other {
	set s {
		type inet_service
		flags interval
		elements = { 1-100 }
	}
}
`

func TestForeignTables(t *testing.T) {
	ns := nstest.New(t)
	run(t, ns, "nft", foreign)
	before := run(t, ns, "nft", "--handle", "list", "ruleset")
	table := open(t, ns)
	ensure(t, table, both, true)
	if err := table.Verify(both); err != nil {
		t.Error(err)
	}
	add(t, table, somePorts(t)...)
	if err := table.Repair(both, nil); err != nil {
		t.Fatal(err)
	}
	if err := table.RemovePorts(somePorts(t)); err != nil {
		t.Fatal(err)
	}
	if err := table.Delete(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, run(t, ns, "nft", "--handle", "list", "ruleset")); d != "" {
		t.Errorf("foreign tables (-before +after):\n%s", d)
	}
}

func TestBadBase(t *testing.T) {
	table := open(t, nstest.New(t))
	pods := prefixes("10.244.1.0/24")
	for name, b := range map[string]Base{
		"no bridge":        {Pods: pods},
		"a path":           {Bridge: "../x", Pods: pods},
		"too long":         {Bridge: "abcdefghijklmnop", Pods: pods},
		"a quote's line":   {Bridge: "a\nb", Pods: pods},
		"no pods":          {Bridge: "pods0"},
		"no network":       {Bridge: "pods0", Pods: []netip.Prefix{{}}},
		"mapped addresses": {Bridge: "pods0", Pods: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)}},
	} {
		if _, err := table.Ensure(b, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
		if err := table.Repair(b, nil); err == nil {
			t.Errorf("%s: no error of Repair", name)
		}
		if err := table.Verify(b); err == nil || errors.Is(err, ErrNoTable) {
			t.Errorf("%s: %v of Verify", name, err)
		}
	}
}

// awkward is a base with prefixes of all kinds of lengths.
var awkward = Base{Bridge: `q"uote`, Pods: prefixes("10.0.0.0/31", "fd00::/127"), Masquerade: true,
	Direct: prefixes("0.0.0.0/1", "198.51.100.7/32", "192.168.0.0/17", "2001:db8::/33", "2001:db9::1/128", "fe80::/10")}

// TestAwkwardNetworks has prefixes of all kinds of lengths compared with what
// the nft program reads in them.
func TestAwkwardNetworks(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	b := Base{Bridge: "a b", Pods: prefixes("10.0.0.0/31")}
	if _, err := table.Ensure(b, nil); err == nil {
		t.Error("a blank in a name")
	}
	b = awkward
	ensure(t, table, b, true)
	if err := table.Verify(b); err != nil {
		t.Error(err)
	}
	golden(t, ns, "awkward.nft")
	b.Direct = prefixes("0.0.0.0/0", "::/0")
	ensure(t, table, b, true)
	if err := table.Verify(b); err != nil {
		t.Error(err)
	}
	golden(t, ns, "everything.nft")
}

func TestUnsupported(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	b := table.begin(0)
	b.newRule(chainPostrouting, when("").masquerade())
	b.newRule(chainPostrouting, when("").encoded(encode(text(unix.NFTA_EXPR_NAME, "none"))).masquerade())
	b.newRule(chainPostrouting, when("").masquerade())
	err := table.commit(b)
	var lacks *Unsupported
	if !errors.As(err, &lacks) || lacks.What != "nft_masq" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("an expression that does not exist: %v", err)
	}
	if err := table.Verify(both); err != nil {
		t.Errorf("half of a transaction: %v", err)
	}
	for _, c := range []struct {
		add   func(b *batch)
		errno unix.Errno
		want  string
	}{
		{func(*batch) {}, unix.EOPNOTSUPP, "nf_tables"},
		{func(*batch) {}, unix.EPERM, ""},
		{func(b *batch) { b.newTable("") }, unix.EAFNOSUPPORT, "nf_tables"},
		{func(b *batch) { b.newChains([]chain{guard("")}) }, unix.ENOENT, "nft_chain_nat, nf_nat"},
		{func(b *batch) { b.newRule("", toHostPorts()) }, unix.ENOENT, "nft_fib_inet"},
		{func(b *batch) { b.newRule("", both.postrouting()[0]) }, unix.ENOENT, "nft_ct, nft_masq"},
		{func(b *batch) { b.newRule("", hostPorts()[0]) }, unix.ENOENT, "nft_nat"},
		{func(b *batch) { b.newRule("", guard("").rules[0]) }, unix.EOPNOTSUPP, "nf_tables"},
		{func(b *batch) { b.addPorts(somePorts(t)) }, unix.ENOENT, ""},
	} {
		b := table.begin(0)
		c.add(b)
		last := b.messages[len(b.messages)-1]
		if got := missing(last, c.errno); got != c.want {
			t.Errorf("message %v, %v: %q, want %q", last.Header, c.errno, got, c.want)
		}
	}
	for kind, add := range map[string]func(b *batch){
		"nft_numgen":      func(b *batch) { b.newRule("", when("").encoded(encode(text(unix.NFTA_EXPR_NAME, "numgen")))) },
		"nft_reject_inet": func(b *batch) { b.newRule("", when("").encoded(encode(text(unix.NFTA_EXPR_NAME, "reject")))) },
		"":                func(b *batch) { b.newSets(serviceSets()) },
	} {
		b := table.begin(0)
		add(b)
		err := table.noTable(explain(&messageError{b.messages[1], unix.ENOENT}))
		if errors.As(err, &lacks) != (kind != "") || errors.Is(err, ErrNoTable) != (kind == "") || kind != "" && lacks.What != kind {
			t.Errorf("a kernel without %q: %v", kind, err)
		}
	}
	if err := unanswered(unix.EINVAL); !errors.As(err, &lacks) || lacks.What != "nf_tables" {
		t.Errorf("nobody to ask: %v", err)
	}
	if _, err := opened(nil, os.NewSyscallError("socket", unix.EPROTONOSUPPORT)); !errors.As(err, &lacks) {
		t.Errorf("no sockets of netfilter: %v", err)
	}
}

// hashOf hashes all that is sent for chains, except the stamp, and for sets.
func hashOf(chains []chain, stamp string, sets []nftables.Set) string {
	h := fnv.New64a()
	for _, c := range chains {
		h.Write(encode(c.encode()...))
		for _, r := range c.rules {
			h.Write(encode(r.expressions...))
			if r.comment != stamp {
				h.Write([]byte(r.comment))
			}
		}
	}
	for _, s := range sets {
		h.Write(encode(encodeSet(s)...))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// TestHashes shows that tables of an older version of this package are noticed:
// where rules change, so must their hashes.
func TestHashes(t *testing.T) {
	var chains []chain
	for _, b := range []Base{both, awkward, {Bridge: "pods0", Pods: prefixes("10.244.1.0/24")}} {
		b, err := b.checked()
		if err != nil {
			t.Fatal(err)
		}
		layout := b.layout()
		layout[2].rules[0].comment = ""
		chains = append(chains, layout...)
	}
	if got := hashOf(chains, "", portSets()); got != rulesHash {
		t.Errorf("rules of a base have changed: set rulesHash to %s", got)
	}
	if got := stampPrefix + hashOf(senderChains(), senderStamp, senderSets()); got != senderStamp {
		t.Errorf("rules of senders have changed: set senderStamp to %q", got)
	}
}

func BenchmarkEnsureUnchanged(b *testing.B) {
	table := open(b, nstest.New(b))
	ensure(b, table, both, true)
	b.ReportAllocs()
	for b.Loop() {
		ensure(b, table, both, false)
	}
}

func BenchmarkEnsureChanged(b *testing.B) {
	table := open(b, nstest.New(b))
	bases := [2]Base{both, both}
	bases[1].Masquerade = false
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		ensure(b, table, bases[i%2], true)
	}
}

func BenchmarkVerify(b *testing.B) {
	table := open(b, nstest.New(b))
	ensure(b, table, both, true)
	b.ReportAllocs()
	for b.Loop() {
		if err := table.Verify(both); err != nil {
			b.Fatal(err)
		}
	}
}
