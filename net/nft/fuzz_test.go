package nft

import (
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listedPorts returns the payload of a message of elements, as the kernel lists them.
func listedPorts(ports ...Port) []byte {
	b := (&Table{family: nftables.TableFamilyINet}).begin(0)
	b.addPorts(ports)
	return b.messages[1].Data
}

func FuzzElements(f *testing.F) {
	for _, p := range []Port{
		port(f, "", TCP, 8080, "10.244.1.2:80", "a"),
		port(f, "192.0.2.1", UDP, 53, "10.244.1.2:53", "b"),
		port(f, "2001:db8::1", SCTP, 1, "[fd00::1]:2", strings.Repeat("x", 120)),
	} {
		m := mapOf(p)
		if got := m.read(decodeElements(attributesOf(listedPorts(p)))); len(got) != 1 || got[0] != p {
			f.Errorf("%v was read as %v", p, got)
		}
		f.Add(listedPorts(p, p))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range portMaps {
			for _, p := range m.read(decodeElements(attributesOf(data))) {
				if p.Pod.Is4() != (m.family == ipv4) || p.HostIP.IsValid() != m.at || len(p.Owner) > 255 {
					t.Errorf("%+v in %s", p, m.name)
				}
				_ = p.String()
			}
		}
	})
}

func FuzzRules(f *testing.F) {
	layout := both.layout()
	for _, c := range layout {
		for _, r := range c.rules {
			b := (&Table{family: nftables.TableFamilyINet}).begin(0)
			b.newRule(c.Name, r)
			payload := b.messages[1].Data
			if !r.is(attributesOf(payload)) {
				f.Errorf("rule %q of %s is not itself", r.comment, c.Name)
			}
			f.Add(payload)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := attributesOf(data)
		same := 0
		for _, c := range layout {
			for _, r := range c.rules {
				if r.is(a) {
					same++
				}
			}
		}
		_ = isSet(portMaps[0].set(), a)
		_ = neededBy(a.value(unix.NFTA_RULE_EXPRESSIONS))
		_ = Shared(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, data)
		_ = Unguards(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, data)
		_ = commentOf(data)
		if same > 1 && len(data) < 100 {
			t.Errorf("%d rules are the same", same)
		}
	})
}

func FuzzConnections(f *testing.F) {
	ends := [2]string{"192.0.2.1:258", "192.0.2.2:53"}
	m := message(0, 0, 0, 0, 0, encodeTuple(nl.CTA_TUPLE_ORIG, UDP, ends), encodeTuple(nl.CTA_TUPLE_REPLY, UDP, ends), number(nl.CTA_STATUS, 8), number(nl.CTA_ID, 7))
	if c, ok := readConnection(attributesOf(m.Data)); !ok || c.orig.dst.String() != "192.0.2.2:53" || c.status != 8 || c.protocol != UDP {
		f.Errorf("%+v, %v", c, ok)
	}
	f.Add(m.Data)
	p := port(f, "", UDP, 53, "10.244.1.2:53", "a")
	s := stale{gone: portsOf([]Port{p}, ipv4, UDP), fresh: portsOf([]Port{p}, ipv4, UDP)}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, ok := readConnection(attributesOf(data))
		if !ok {
			return
		}
		_ = s.is(c)
		if attributes(c.key).value(nl.CTA_TUPLE_ORIG) == nil {
			t.Error("a connection without a key, that is, all of them")
		}
	})
}

func FuzzOwner(f *testing.F) {
	f.Add("shop/web")
	f.Add("a\"\x00\xff")
	f.Add(strings.Repeat("x", 300))
	f.Fuzz(func(t *testing.T, owner string) {
		kept := KeptOwner(owner)
		if len(kept) > ownerLen || KeptOwner(kept) != kept {
			t.Errorf("%q is kept as %q", owner, kept)
		}
		if got := commentOf(commentData(commentOfElement, kept)); got != kept {
			t.Errorf("%q was read as %q", kept, got)
		}
	})
}
