package ipam

import (
	"encoding/binary"
	"fmt"
	"math/bits"
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
	// First and Last are the bounds, both included; zero is the first and the last host
	// address. Of more than 2^32 addresses only the lowest 2^32 are chosen
	// automatically.
	First, Last netip.Addr
}

// maxSpan is the maximum distance from First of an address that is chosen automatically.
const maxSpan = 1<<32 - 1

// Complete returns the range with the defaults of Gateway, First and Last, or an error
// if it is invalid.
func (r Range) Complete() (Range, error) {
	low, high, err := hostRange(r.Prefix)
	if err != nil {
		return Range{}, err
	}
	for _, f := range []struct {
		name string
		addr *netip.Addr
		zero netip.Addr
	}{{"gateway", &r.Gateway, low}, {"first address", &r.First, low}, {"last address", &r.Last, high}} {
		if !f.addr.IsValid() {
			*f.addr = f.zero
		}
		if !within(*f.addr, low, high) {
			return Range{}, fmt.Errorf("address range %s: %s %s is not between %s and %s", r.Prefix, f.name, *f.addr, low, high)
		}
	}
	if r.Last.Less(r.First) {
		return Range{}, fmt.Errorf("address range %s: first address %s is after last address %s", r.Prefix, r.First, r.Last)
	}
	if r.First == r.Last && r.First == r.Gateway {
		return Range{}, fmt.Errorf("address range %s: the only address, %s, is the gateway", r.Prefix, r.First)
	}
	return r, nil
}

// allocatable reports whether an address may be allocated from a complete range. It
// ignores maxSpan, because an address above it may be requested.
func (r Range) allocatable(a netip.Addr) bool {
	return within(a, r.First, r.Last) && a != r.Gateway
}

// hostRange returns the lowest and the highest host address of a network.
func hostRange(p netip.Prefix) (low, high netip.Addr, err error) {
	switch a := p.Addr(); {
	case !p.IsValid():
		return low, high, fmt.Errorf("address range has no valid prefix")
	case a.Is4In6():
		return low, high, fmt.Errorf("address range %s is IPv4-mapped IPv6: write it as IPv4", p)
	case p != p.Masked():
		return low, high, fmt.Errorf("address range %s has host bits: write %s", p, p.Masked())
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		return low, high, fmt.Errorf("address range %s is not usable for hosts", p)
	case a.BitLen()-p.Bits() < 2:
		return low, high, fmt.Errorf("address range %s is too small: use a /%d or larger", p, a.BitLen()-2)
	}
	low, high = p.Addr().Next(), lastAddress(p)
	if high.Is4() {
		high = high.Prev() // the broadcast address
	}
	return low, high, nil
}

func within(a, low, high netip.Addr) bool {
	return a.BitLen() == low.BitLen() && a.Zone() == "" && !a.Is4In6() && !a.Less(low) && !high.Less(a)
}

// lastAddress returns the highest address of a network.
func lastAddress(p netip.Prefix) netip.Addr {
	host := p.Addr().BitLen() - p.Bits()
	hi, lo := words(p.Addr())
	if host > 64 {
		hi |= 1<<(host-64) - 1
		host = 64
	}
	return fromWords(hi, lo|(1<<host-1), p.Addr().Is4())
}

// distance returns the distance between two addresses of a family, at most maxSpan.
func distance(first, last netip.Addr) uint64 {
	fh, fl := words(first)
	lh, ll := words(last)
	lo, borrow := bits.Sub64(ll, fl, 0)
	if hi, _ := bits.Sub64(lh, fh, borrow); hi != 0 {
		return maxSpan
	}
	return min(lo, maxSpan)
}

// addOffset returns the address a+n.
func addOffset(a netip.Addr, n uint64) netip.Addr {
	hi, lo := words(a)
	lo, carry := bits.Add64(lo, n, 0)
	return fromWords(hi+carry, lo, a.Is4())
}

// words returns an address as a number of 128 bits.
func words(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

func fromWords(hi, lo uint64, is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	a := netip.AddrFrom16(b)
	if is4 {
		return a.Unmap()
	}
	return a
}
