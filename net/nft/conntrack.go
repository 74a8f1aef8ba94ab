package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Connections are deleted by messages of this package: ConntrackDeleteFilters of
// github.com/vishvananda/netlink does not read the ports of SCTP, nor the status
// that shows whether addresses were translated, and it lists all connections of an
// IP version and keeps them in memory, which may be 65536 of about 300 bytes each. Here
// the kernel lists those of one protocol, and of one port if only one is concerned, and
// they are read one datagram at a time.

// deletions is the number of connections that are deleted in one system call. The
// kernel's answers to all have to fit into the receive buffer.
const deletions = 128

// deleteStaleConnections deletes connections of UDP and SCTP that began before
// ports were removed or added, and would continue as before: those that lead to
// the pods of gone, and those to ports of fresh that lead elsewhere. NAT rules apply to
// the first packet of a connection only. After the deletion, the next packet begins a new
// connection. On a kernel without nf_conntrack_netlink the connections stay until they
// end.
func (t *Table) deleteStaleConnections(gone, fresh []Port) error {
	for _, f := range []family{ipv4, ipv6} {
		for _, protocol := range []Protocol{UDP, SCTP} {
			s := stale{gone: portsOf(gone, f, protocol), fresh: portsOf(fresh, f, protocol)}
			if len(s.gone)+len(s.fresh) == 0 {
				continue
			}
			if err := t.conn.deleteStale(f, protocol, s); err != nil && !noConntrack(err) {
				return fmt.Errorf("delete stale connections of host ports: %w", err)
			}
		}
	}
	return nil
}

// noConntrack reports whether the kernel lacks nf_conntrack_netlink: with it no
// request of this package is invalid.
func noConntrack(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// portsOf returns the ports of a family and protocol, by host port.
func portsOf(ports []Port, f family, protocol Protocol) map[uint16][]Port {
	some := map[uint16][]Port{}
	for _, p := range ports {
		if p.Protocol == protocol && familyOf(p.Pod) == f {
			some[p.Host] = append(some[p.Host], p)
		}
	}
	return some
}

// stale selects connections by host ports.
type stale struct{ gone, fresh map[uint16][]Port }

// is reports whether a connection is stale.
func (s stale) is(c connection) bool {
	for _, p := range s.gone[c.orig.dst.Port()] {
		if p.on(c) && c.reply.src == netip.AddrPortFrom(p.Pod, p.Target) {
			return true
		}
	}
	on := false
	for _, p := range s.fresh[c.orig.dst.Port()] {
		switch {
		case !p.on(c):
		case c.reply.src == netip.AddrPortFrom(p.Pod, p.Target):
			return false
		case p.HostIP.IsValid(), c.status&(ipsSrcNAT|ipsDstNAT) == 0:
			// A connection with translated addresses may be to another machine, where
			// the port is on all addresses.
			on = true
		}
	}
	return on
}

// on reports whether the connection is to an address that the port is on.
func (p Port) on(c connection) bool {
	return !p.HostIP.IsValid() || p.HostIP == c.orig.dst.Addr()
}

// single returns the host port that all connections have, 0 if there are several.
func (s stale) single() (port uint16) {
	for _, side := range []map[uint16][]Port{s.gone, s.fresh} {
		for p := range side {
			if port != 0 && port != p {
				return 0
			}
			port = p
		}
	}
	return port
}

// deleteStale lists the connections of a protocol and deletes the stale ones.
func (c *conn) deleteStale(f family, protocol Protocol, s stale) error {
	var keys [][]byte
	err := c.dump(listConnections(f, protocol, s.single()), func() { keys = nil }, func(payload []byte) {
		// Older kernels list those of all protocols.
		if c, ok := readConnection(attributesOf(payload)); ok && c.protocol == protocol && s.is(c) {
			keys = append(keys, c.key)
		}
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(keys, deletions) {
		if err := c.deleteConnections(f, some); err != nil {
			return err
		}
	}
	return nil
}

// deleteConnections deletes connections. Some may have ended meanwhile.
func (c *conn) deleteConnections(f family, keys [][]byte) error {
	messages := make([]netlink.Message, 0, len(keys))
	for _, key := range keys {
		m := message(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_DELETE, netlink.Acknowledge, f.nfproto, 0)
		m.Data = append(m.Data, key...)
		messages = append(messages, m)
	}
	return ignoreAbsent(c.execute(messages))
}

// What include/uapi/linux/netfilter/nfnetlink_conntrack.h has for filters.
const (
	ctaFilter     = 25
	ctaFilterOrig = 1      // CTA_FILTER_ORIG_FLAGS
	filterProto   = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
	filterDst     = 1 << 5 // CTA_FILTER_F_CTA_PROTO_DST_PORT
)

// listConnections requests the connections of a protocol, and of those the ones to
// one port unless it is 0. Kernels before Linux 5.8 ignore the filter.
func listConnections(f family, protocol Protocol, port uint16) netlink.Message {
	bits := uint32(filterProto)
	proto := []netlink.Attribute{bytesOf(nl.CTA_PROTO_NUM, []byte{byte(protocol)})}
	if port != 0 {
		bits |= filterDst
		proto = append(proto, bytesOf(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, port)))
	}
	return message(unix.NFNL_SUBSYS_CTNETLINK, nl.IPCTNL_MSG_CT_GET, netlink.Dump, f.nfproto, 0,
		nested(nl.CTA_TUPLE_ORIG, nested(nl.CTA_TUPLE_PROTO, proto...)),
		nested(ctaFilter, bytesOf(ctaFilterOrig, native.AppendUint32(nil, bits))))
}

// connection is one that the kernel tracks.
type connection struct {
	protocol    Protocol
	orig, reply tuple
	status      uint32
	key         []byte // the attributes by which it is deleted
}

// tuple is one direction of a connection.
type tuple struct{ src, dst netip.AddrPort }

// readConnection reads a connection. ok is false without both directions.
func readConnection(all attributes) (c connection, ok bool) {
	if c.protocol, c.orig, ok = readTuple(all.value(nl.CTA_TUPLE_ORIG)); !ok {
		return c, false
	}
	if _, c.reply, ok = readTuple(all.value(nl.CTA_TUPLE_REPLY)); !ok {
		return c, false
	}
	c.status = all.number(nl.CTA_STATUS)
	// The ID distinguishes it from a later connection between the same ends.
	key := []netlink.Attribute{bytesOf(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, all.value(nl.CTA_TUPLE_ORIG))}
	for _, kind := range []uint16{nl.CTA_ID, nl.CTA_ZONE} {
		if value := all.value(kind); value != nil {
			key = append(key, bytesOf(kind, value))
		}
	}
	c.key = encode(key...)
	return c, true
}

func readTuple(all attributes) (protocol Protocol, t tuple, ok bool) {
	ip, proto := all.value(nl.CTA_TUPLE_IP), all.value(nl.CTA_TUPLE_PROTO)
	src, dst := readAddress(ip, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC), readAddress(ip, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST)
	num, from, to := proto.value(nl.CTA_PROTO_NUM), proto.value(nl.CTA_PROTO_SRC_PORT), proto.value(nl.CTA_PROTO_DST_PORT)
	if !src.IsValid() || !dst.IsValid() || len(num) != 1 || len(from) != 2 || len(to) != 2 {
		return 0, t, false
	}
	t.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(from))
	t.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(to))
	return Protocol(num[0]), t, true
}

func readAddress(ip attributes, v4, v6 uint16) netip.Addr {
	value := ip.value(v4)
	if len(value) != 4 {
		value = ip.value(v6)
	}
	addr, _ := netip.AddrFromSlice(value)
	return addr
}
