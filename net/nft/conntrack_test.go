package nft

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

// TestStaleDatagrams keeps one socket sending while its host port changes: all
// its packets are of one connection for the kernel.
func TestStaleDatagrams(t *testing.T) {
	n, table := reach(t, both)
	n.serve(n.host, ":8080", "host")
	n.serve(n.host, "192.0.2.9:8081", "host")
	for _, c := range []struct {
		name, addr string
		a, b       Port
	}{
		{"IPv4", "192.0.2.1:8080", port(t, "", UDP, 8080, "10.244.1.2:80", "a"), port(t, "", UDP, 8080, "10.244.1.3:80", "b")},
		{"IPv6", "[2001:db8::1]:8080", port(t, "", UDP, 8080, "[fd00:244:1::2]:80", "a"), port(t, "", UDP, 8080, "[fd00:244:1::3]:80", "b")},
		{"one address", "192.0.2.9:8081", port(t, "192.0.2.9", UDP, 8081, "10.244.1.2:80", "a"), port(t, "192.0.2.9", UDP, 8081, "10.244.1.3:80", "b")},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := n.dial(n.outside, "udp", c.addr)
			hears := func(want string) {
				t.Helper()
				if got := n.hear(socket, patience); !strings.HasPrefix(got, want) {
					t.Errorf("heard %q, want %s", got, want)
				}
			}
			hears("host")
			add(t, table, c.a)
			hears("a ")
			if err := table.RemovePorts([]Port{c.a}); err != nil {
				t.Fatal(err)
			}
			add(t, table, c.b)
			hears("b ")
			if err := table.RemovePorts([]Port{{HostIP: c.b.HostIP, Protocol: c.b.Protocol, Host: c.b.Host, Owner: "b"}}); err != nil {
				t.Fatal(err)
			}
			hears("host")
			add(t, table, c.a)
			hears("a ")
			moved := c.b
			moved.Owner = "a"
			add(t, table, moved)
			hears("b ")
			if err := table.RemovePorts([]Port{moved}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// insert makes the kernel track a connection.
func insert(t *testing.T, ns *os.File, protocol Protocol, orig, reply [2]string) {
	t.Helper()
	all := []netlink.Attribute{
		encodeTuple(nl.CTA_TUPLE_ORIG, protocol, orig), encodeTuple(nl.CTA_TUPLE_REPLY, protocol, reply),
		number(7, 600), // CTA_TIMEOUT, in seconds
	}
	if protocol == TCP {
		// CTA_PROTOINFO, CTA_PROTOINFO_TCP and its state: established
		all = append(all, nested(4, nested(1, bytesOf(1, []byte{3}))))
	}
	f := familyOf(netip.MustParseAddrPort(orig[0]).Addr())
	m := message(unix.NFNL_SUBSYS_CTNETLINK, 0, netlink.Create|netlink.Excl|netlink.Acknowledge, f.nfproto, 0, all...)
	if err := open(t, ns).conn.execute([]netlink.Message{m}); err != nil {
		t.Fatalf("track %s %v: %v", protocol, orig, err)
	}
}

func encodeTuple(kind uint16, protocol Protocol, ends [2]string) netlink.Attribute {
	src, dst := netip.MustParseAddrPort(ends[0]), netip.MustParseAddrPort(ends[1])
	from, to := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if src.Addr().Is6() {
		from, to = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	return nested(kind,
		nested(nl.CTA_TUPLE_IP, bytesOf(from, src.Addr().AsSlice()), bytesOf(to, dst.Addr().AsSlice())),
		nested(nl.CTA_TUPLE_PROTO, bytesOf(nl.CTA_PROTO_NUM, []byte{byte(protocol)}),
			bytesOf(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, src.Port())),
			bytesOf(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, dst.Port()))))
}

// tracked lists the destinations of connections, sorted.
func tracked(t *testing.T, table *Table, protocol Protocol) (all []string) {
	t.Helper()
	for _, f := range []family{ipv4, ipv6} {
		if err := table.conn.dump(listConnections(f, protocol, 0), nil, func(payload []byte) {
			if c, ok := readConnection(attributesOf(payload)); ok && c.protocol == protocol {
				all = append(all, c.orig.dst.String())
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return all
}

func TestForget(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	const client = "192.0.2.2:4000"
	plain := func(protocol Protocol, to string) {
		insert(t, ns, protocol, [2]string{client, to}, [2]string{to, client})
	}
	led := func(protocol Protocol, to, pod string) {
		insert(t, ns, protocol, [2]string{client, to}, [2]string{pod, client})
	}
	for _, protocol := range []Protocol{TCP, UDP, SCTP} {
		plain(protocol, "192.0.2.1:53")
		plain(protocol, "192.0.2.1:54")
		led(protocol, "192.0.2.9:53", "10.244.1.2:5353")
		led(protocol, "192.0.2.8:53", "10.244.1.2:5354")
		led(protocol, "192.0.2.7:53", "10.244.1.4:5353")
		led(protocol, "192.0.2.9:55", "10.244.1.6:5353")
	}
	for _, protocol := range []Protocol{UDP, SCTP} {
		if got := tracked(t, table, protocol); len(got) != 6 {
			t.Fatalf("%s: %q", protocol, got)
		}
		gone := []Port{port(t, "", protocol, 53, "10.244.1.2:5353", "a"), port(t, "", protocol, 55, "10.244.1.9:5353", "a")}
		if err := table.RemovePorts(gone); err != nil {
			t.Fatal(err)
		}
		want := []string{"192.0.2.1:53", "192.0.2.1:54", "192.0.2.7:53", "192.0.2.8:53", "192.0.2.9:55"}
		if got := tracked(t, table, protocol); !slices.Equal(got, want) {
			t.Errorf("%s, removed: %q", protocol, got)
		}
		add(t, table, port(t, "192.0.2.3", protocol, 54, "10.244.1.2:5353", "a"))
		if got := tracked(t, table, protocol); !slices.Equal(got, want) {
			t.Errorf("%s, another address added: %q", protocol, got)
		}
		add(t, table, port(t, "192.0.2.1", protocol, 53, "10.244.1.2:5353", "a"))
		if got := tracked(t, table, protocol); !slices.Equal(got, want[1:]) {
			t.Errorf("%s, added: %q", protocol, got)
		}
		plain(protocol, "192.0.2.1:53")
		add(t, table, port(t, "192.0.2.1", protocol, 53, "10.244.1.2:5353", "a"))
		if got := tracked(t, table, protocol); !slices.Equal(got, want) {
			t.Errorf("%s, existing port added again: %q", protocol, got)
		}
	}
	if got := tracked(t, table, TCP); len(got) != 6 {
		t.Errorf("TCP: %q", got)
	}
}

// TestForgetMany deletes more connections than go into one send.
func TestForgetMany(t *testing.T) {
	ns := nstest.New(t)
	table := open(t, ns)
	ensure(t, table, both, true)
	for i := range 3 * deletions {
		client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), uint16(1000+i)).String()
		insert(t, ns, UDP, [2]string{client, "192.0.2.1:53"}, [2]string{"192.0.2.1:53", client})
	}
	add(t, table, port(t, "", UDP, 53, "10.244.1.2:53", "a"))
	if got := tracked(t, table, UDP); len(got) != 0 {
		t.Errorf("%d are left", len(got))
	}
}
