package ipam

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
)

// Range is the addresses that may be given to pods of one network. The
// network's own address, IPv4's broadcast address and the gateway are never
// given.
type Range struct {
	// Prefix is the network, without host bits: an IPv4 /30 or larger, an
	// IPv6 /126 or larger.
	Prefix netip.Prefix
	// Gateway is the node's own address in it; zero is the first usable one.
	Gateway netip.Addr
	// First and Last bound what is given, both included; zero is the first
	// and the last usable one. Of more than 2^32 addresses only the lowest
	// 2^32 are given.
	First, Last netip.Addr
}

// maxSpan is the largest distance of a given address from the first.
const maxSpan = 1<<32 - 1

// Validate says what is wrong with the range, and is nil where it can be used.
func (r Range) Validate() error {
	_, err := r.Complete()
	return err
}

// Complete is the range with Gateway, First and Last filled in. Its error is
// that of Validate.
func (r Range) Complete() (Range, error) {
	low, high, err := usable(r.Prefix)
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
			return Range{}, fmt.Errorf("address range %s: %s %s is not one of %s to %s", r.Prefix, f.name, *f.addr, low, high)
		}
	}
	if r.Last.Less(r.First) {
		return Range{}, fmt.Errorf("address range %s: first address %s is behind the last, %s", r.Prefix, r.First, r.Last)
	}
	if r.First == r.Last && r.First == r.Gateway {
		return Range{}, fmt.Errorf("address range %s: from %s to %s is only the gateway", r.Prefix, r.First, r.Last)
	}
	return r, nil
}

// Contains says whether the address is one that the range may give; an invalid
// range gives none.
func (r Range) Contains(a netip.Addr) bool {
	c, err := r.Complete()
	return err == nil && c.gives(a)
}

// gives is Contains of a complete range. It knows nothing of maxSpan: who
// wants an address by name may have one above it.
func (r Range) gives(a netip.Addr) bool {
	return within(a, r.First, r.Last) && a != r.Gateway
}

// usable are the lowest and highest address that a network has for hosts.
func usable(p netip.Prefix) (low, high netip.Addr, err error) {
	switch a := p.Addr(); {
	case !p.IsValid():
		return low, high, fmt.Errorf("address range has no valid prefix")
	case a.Is4In6():
		return low, high, fmt.Errorf("address range %s is IPv4 in IPv6: write it as IPv4", p)
	case p != p.Masked():
		return low, high, fmt.Errorf("address range %s has bits set behind the prefix: write %s", p, p.Masked())
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		return low, high, fmt.Errorf("address range %s is not for hosts", p)
	case a.BitLen()-p.Bits() < 2:
		return low, high, fmt.Errorf("address range %s is too small: it takes a /%d or larger", p, a.BitLen()-2)
	}
	low, high = p.Addr().Next(), last(p)
	if high.Is4() {
		high = high.Prev() // the broadcast address
	}
	return low, high, nil
}

func within(a, low, high netip.Addr) bool {
	return a.BitLen() == low.BitLen() && a.Zone() == "" && !a.Is4In6() && !a.Less(low) && !high.Less(a)
}

// last is the highest address of a network.
func last(p netip.Prefix) netip.Addr {
	host := p.Addr().BitLen() - p.Bits()
	hi, lo := words(p.Addr())
	if host > 64 {
		hi |= 1<<(host-64) - 1
		host = 64
	}
	return address(hi, lo|(1<<host-1), p.Addr().Is4())
}

// span is how far apart two addresses of a family are, at most maxSpan.
func span(first, last netip.Addr) uint64 {
	fh, fl := words(first)
	lh, ll := words(last)
	lo, borrow := bits.Sub64(ll, fl, 0)
	if hi, _ := bits.Sub64(lh, fh, borrow); hi != 0 {
		return maxSpan
	}
	return min(lo, maxSpan)
}

// plus is the address n behind a.
func plus(a netip.Addr, n uint64) netip.Addr {
	hi, lo := words(a)
	lo, carry := bits.Add64(lo, n, 0)
	return address(hi+carry, lo, a.Is4())
}

// words are an address as a number of 128 bits.
func words(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

func address(hi, lo uint64, is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	a := netip.AddrFrom16(b)
	if is4 {
		return a.Unmap()
	}
	return a
}
