package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// The messages, attributes and bits of connection tracking, of
// include/uapi/linux/netfilter/nfnetlink_conntrack.h and
// nf_conntrack_common.h.
const (
	ctGet    = 1
	ctDelete = 2

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25

	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaIPv4Src    = 1
	ctaIPv4Dst    = 2
	ctaIPv6Src    = 3
	ctaIPv6Dst    = 4
	ctaProtoNum   = 1
	ctaProtoSrc   = 2
	ctaProtoDst   = 3

	ctaFilterOrig = 1      // CTA_FILTER_ORIG_FLAGS
	filterProto   = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
	filterDst     = 1 << 5 // CTA_FILTER_F_CTA_PROTO_DST_PORT

	ipsSrcNAT = 1 << 4
)

// connection is one that the kernel tracks.
type connection struct {
	protocol    Protocol
	orig, reply tuple
	status      uint32
	key         []byte // the attributes by which it is deleted
}

// tuple is one direction of a connection.
type tuple struct{ src, dst netip.AddrPort }

// readConnection reads a connection's attributes; ok is false without both
// directions.
func readConnection(data []byte) (c connection, ok bool) {
	orig := netlink.Attribute(data, ctaTupleOrig)
	reply := netlink.Attribute(data, ctaTupleReply)
	c.protocol, c.orig, ok = readTuple(orig)
	if !ok {
		return c, false
	}
	if _, c.reply, ok = readTuple(reply); !ok {
		return c, false
	}
	c.status = net32(netlink.Attribute(data, ctaStatus))
	c.key = connectionKey(orig, data)
	return c, true
}

// connectionKey is what names a connection, and no later one like it.
func connectionKey(orig, data []byte) []byte {
	var e encoded
	e.attribute(ctaTupleOrig|unix.NLA_F_NESTED, orig)
	for _, kind := range []uint16{ctaID, ctaZone} {
		if value := netlink.Attribute(data, kind); value != nil {
			e.attribute(kind, value)
		}
	}
	return e.code
}

func readTuple(data []byte) (protocol Protocol, t tuple, ok bool) {
	ip := netlink.Attribute(data, ctaTupleIP)
	src, dst := address(ip, ctaIPv4Src, ctaIPv6Src), address(ip, ctaIPv4Dst, ctaIPv6Dst)
	proto := netlink.Attribute(data, ctaTupleProto)
	number := netlink.Attribute(proto, ctaProtoNum)
	from, to := netlink.Attribute(proto, ctaProtoSrc), netlink.Attribute(proto, ctaProtoDst)
	if !src.IsValid() || !dst.IsValid() || len(number) != 1 || len(from) != 2 || len(to) != 2 {
		return 0, t, false
	}
	t.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(from))
	t.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(to))
	return Protocol(number[0]), t, true
}

func address(data []byte, v4, v6 uint16) netip.Addr {
	value := netlink.Attribute(data, v4)
	if len(value) != 4 {
		value = netlink.Attribute(data, v6)
	}
	addr, _ := netip.AddrFromSlice(value)
	return addr
}
