package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Range is the range of addresses that may be allocated in one network. The network
// address, the IPv4 broadcast address and the gateway are never allocated.
type Range struct {
	// Prefix is the network, without host bits: an IPv4 /30 or larger, an IPv6 /126 or
	// larger.
	Prefix netip.Prefix
	// Gateway is the node's own address in the network; zero is the first host address.
	Gateway netip.Addr
}

// maxHosts is the number of the lowest host addresses that are chosen automatically.
const maxHosts = 1 << 32

// Complete returns the range with the default of Gateway, or an error if it is invalid.
func (r Range) Complete() (Range, error) {
	switch p, a := r.Prefix, r.Prefix.Addr(); {
	case !p.IsValid():
		return Range{}, fmt.Errorf("address range has no valid prefix")
	case a.Is4In6():
		return Range{}, fmt.Errorf("address range %s is IPv4-mapped IPv6: write it as IPv4", p)
	case p != p.Masked():
		return Range{}, fmt.Errorf("address range %s has host bits: write %s", p, p.Masked())
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		return Range{}, fmt.Errorf("address range %s is not usable for hosts", p)
	case a.BitLen()-p.Bits() < 2:
		return Range{}, fmt.Errorf("address range %s is too small: use a /%d or larger", p, a.BitLen()-2)
	}
	low, high := r.hosts()
	if !r.Gateway.IsValid() {
		r.Gateway = low
	}
	if !r.isHost(r.Gateway) {
		return Range{}, fmt.Errorf("address range %s: gateway %s is not between %s and %s", r.Prefix, r.Gateway, low, high)
	}
	return r, nil
}

// allocatable reports whether an address may be allocated from a complete range. It
// ignores maxHosts, because an address above it may be requested.
func (r Range) allocatable(a netip.Addr) bool {
	return r.isHost(a) && a != r.Gateway
}

// isHost reports whether a valid network has a host address. The last IPv4 address is the
// broadcast address.
func (r Range) isHost(a netip.Addr) bool {
	return r.Prefix.Contains(a) && !a.Is4In6() && a != r.Prefix.Addr() && (a.Is6() || r.Prefix.Contains(a.Next()))
}

// hosts returns the lowest and the highest host address of a valid network.
func (r Range) hosts() (low, high netip.Addr) {
	last := r.Prefix.Addr().AsSlice()
	for i := r.Prefix.Bits(); i < 8*len(last); i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	high, _ = netip.AddrFromSlice(last)
	if high.Is4() {
		high = high.Prev()
	}
	return r.Prefix.Addr().Next(), high
}

// size returns the number of host addresses, at most maxHosts.
func (r Range) size() uint64 {
	bits := r.Prefix.Addr().BitLen() - r.Prefix.Bits()
	switch {
	case bits > 32:
		return maxHosts
	case r.Prefix.Addr().Is4():
		return 1<<bits - 2
	}
	return 1<<bits - 1
}

// host returns the host address with a number below size, from 0 on. The lower 64 bits of
// the network's address do not overflow, because its host bits are zero.
func (r Range) host(n uint64) netip.Addr {
	b := r.Prefix.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+n+1)
	a := netip.AddrFrom16(b)
	if r.Prefix.Addr().Is4() {
		return a.Unmap()
	}
	return a
}
