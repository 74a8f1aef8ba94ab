package nft

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// family says where an IP version has what in its header.
type family struct {
	nfproto     byte
	source, dst int // offsets of the addresses
	length      int // of an address
}

var (
	ipv4 = family{nfproto: unix.NFPROTO_IPV4, source: 12, dst: 16, length: 4}
	ipv6 = family{nfproto: unix.NFPROTO_IPV6, source: 8, dst: 24, length: 16}
)

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

// words is how many registers of 4 bytes an address takes.
func (f family) words() int { return f.length / 4 }

// ip matches packets of an IP version.
func (r *rule) ip(f family) *rule {
	return r.meta(unix.NFT_META_NFPROTO, 0).equal([]byte{f.nfproto})
}

// source matches packets from a network.
func (r *rule) source(p netip.Prefix) *rule {
	f := familyOf(p.Addr())
	return r.ip(f).within(f.source, f.length, p)
}

// destination matches packets to a network.
func (r *rule) destination(p netip.Prefix) *rule {
	f := familyOf(p.Addr())
	return r.ip(f).within(f.dst, f.length, p)
}

// notTo matches packets to anywhere but a network whose prefix is of whole bytes.
func (r *rule) notTo(p netip.Prefix) *rule {
	f, bytes := familyOf(p.Addr()), p.Bits()/8
	r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.dst, bytes, 0)
	return r.compare(unix.NFT_CMP_NEQ, p.Addr().AsSlice()[:bytes])
}

// portKey loads the protocol and the destination's port, as maps have them.
func (r *rule) portKey(word int) *rule {
	r.meta(unix.NFT_META_L4PROTO, word)
	return r.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, word+1)
}

// within matches an address in a header. As many bytes as the prefix has are
// compared where these are whole.
func (r *rule) within(offset, length int, p netip.Prefix) *rule {
	bits := p.Bits()
	addr := p.Masked().Addr().AsSlice()
	switch {
	case bits == 0:
		return r
	case bits%8 == 0:
		return r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, bits/8, 0).equal(addr[:bits/8])
	}
	r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, length, 0)
	return r.mask(netmask(bits, length)).equal(addr)
}

func netmask(bits, length int) []byte {
	mask := make([]byte, length)
	for i := range mask {
		mask[i] = byte(uint16(0xff00) >> min(max(bits-8*i, 0), 8))
	}
	return mask
}

// interfaceName is a name as registers have it.
func interfaceName(name string) []byte {
	value := make([]byte, unix.IFNAMSIZ)
	copy(value, name)
	return value
}

// notFrom matches what has come in by another interface.
func (r *rule) notFrom(name string) *rule {
	return r.meta(unix.NFT_META_IIFNAME, 0).compare(unix.NFT_CMP_NEQ, interfaceName(name))
}

// out matches what goes out by an interface.
func (r *rule) out(name string) *rule {
	return r.meta(unix.NFT_META_OIFNAME, 0).equal(interfaceName(name))
}

// local matches what is for an address of this machine.
func (r *rule) local() *rule { return r.localAddress(unix.NFTA_FIB_F_DADDR) }

// localSource matches what an address of this machine has sent.
func (r *rule) localSource() *rule { return r.localAddress(unix.NFTA_FIB_F_SADDR) }

func (r *rule) localAddress(which uint32) *rule {
	r.begin("fib")
	r.number(unix.NFTA_FIB_DREG, register(0))
	r.number(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
	r.number(unix.NFTA_FIB_FLAGS, which)
	return r.end().equal(native(unix.RTN_LOCAL))
}

// ipsDstNAT is a bit of a connection's status, IPS_DST_NAT of
// include/uapi/linux/netfilter/nf_conntrack_common.h.
const ipsDstNAT = 1 << 5

// redirected matches connections whose destination was changed.
func (r *rule) redirected() *rule {
	r.begin("ct")
	r.number(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS)
	r.number(unix.NFTA_CT_DREG, register(0))
	r.end().mask(native(ipsDstNAT))
	return r.compare(unix.NFT_CMP_NEQ, native(0))
}
