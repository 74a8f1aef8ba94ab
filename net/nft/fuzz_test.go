package nft

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// message is the payload of a message of elements, as the kernel has it.
func message(m portMap, ports ...Port) []byte {
	var e encoded
	list := e.open(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, p := range ports {
		element := e.open(unix.NFTA_LIST_ELEM)
		e.value(unix.NFTA_SET_ELEM_KEY, m.key(p))
		e.value(unix.NFTA_SET_ELEM_DATA, m.value(p))
		e.attribute(unix.NFTA_SET_ELEM_USERDATA, userdata(commentOfElement, p.Owner))
		e.close(element)
	}
	e.close(list)
	return append(header(unix.NFPROTO_INET, 0), e.code...)
}

func FuzzElements(f *testing.F) {
	for _, p := range []Port{
		port(f, "", TCP, 8080, "10.244.1.2:80", "a"),
		port(f, "192.0.2.1", UDP, 53, "10.244.1.2:53", "b"),
		port(f, "2001:db8::1", SCTP, 1, "[fd00::1]:2", strings.Repeat("x", 120)),
	} {
		m := mapOf(p)
		if got := m.read(message(m, p), nil); len(got) != 1 || got[0] != p {
			f.Errorf("%v was read as %v", p, got)
		}
		f.Add(message(m, p, p))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range portMaps {
			for _, p := range m.read(data, nil) {
				if p.Pod.Is4() != (m.family == ipv4) || p.HostIP.IsValid() != m.at || len(p.Owner) > 255 {
					t.Errorf("%+v in %s", p, m.name)
				}
				_ = p.String()
			}
		}
	})
}

func FuzzRules(f *testing.F) {
	for _, c := range both.layout() {
		for _, r := range c.rules {
			var e encoded
			e.attribute(unix.NFTA_RULE_EXPRESSIONS, r.code)
			e.attribute(unix.NFTA_RULE_USERDATA, userdata(commentOfRule, r.comment))
			if !r.is(e.code) {
				f.Errorf("rule %q of %s is not itself", r.comment, c.name)
			}
			f.Add(e.code)
		}
	}
	layout := both.layout()
	f.Fuzz(func(t *testing.T, data []byte) {
		same := 0
		for _, c := range layout {
			for _, r := range c.rules {
				if r.is(data) {
					same++
				}
			}
			_ = c.is(data)
		}
		_ = portMaps[0].set().is(data)
		_ = needs(data)
		_ = comment(data)
		if same > 1 && len(data) < 100 {
			t.Errorf("%d rules are the same", same)
		}
	})
}

func FuzzConnections(f *testing.F) {
	var e encoded
	for _, kind := range []uint16{ctaTupleOrig, ctaTupleReply} {
		tuple := e.open(kind)
		ip := e.open(ctaTupleIP)
		e.attribute(ctaIPv4Src, []byte{192, 0, 2, 1})
		e.attribute(ctaIPv4Dst, []byte{192, 0, 2, 2})
		e.close(ip)
		proto := e.open(ctaTupleProto)
		e.attribute(ctaProtoNum, []byte{17})
		e.attribute(ctaProtoSrc, []byte{1, 2})
		e.attribute(ctaProtoDst, []byte{0, 53})
		e.close(proto)
		e.close(tuple)
	}
	e.number(ctaStatus, 8)
	e.number(ctaID, 7)
	if c, ok := readConnection(e.code); !ok || c.orig.dst.String() != "192.0.2.2:53" || c.status != 8 || c.protocol != UDP {
		f.Errorf("%+v, %v", c, ok)
	}
	f.Add(e.code)
	p := port(f, "", UDP, 53, "10.244.1.2:53", "a")
	s := stale{gone: portsOf([]Port{p}, ipv4, UDP), fresh: portsOf([]Port{p}, ipv4, UDP)}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, ok := readConnection(data)
		if !ok {
			return
		}
		_ = s.is(c)
		if netlink.Attribute(c.key, ctaTupleOrig) == nil {
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
		if got := comment(userdata(commentOfElement, kept)); got != kept {
			t.Errorf("%q was read as %q", kept, got)
		}
	})
}
