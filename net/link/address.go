package link

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Address is an address of a link.
type Address struct {
	Index  int // of the link
	Prefix netip.Prefix
	Scope  uint8  // unix.RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RT_SCOPE_HOST, ...
	Flags  uint32 // unix.IFA_F_*
}

// Global says that the address is valid beyond the link.
func (a Address) Global() bool { return a.Scope < unix.RT_SCOPE_LINK }

// Deprecated says that no new connection should have the address.
func (a Address) Deprecated() bool { return a.Flags&unix.IFA_F_DEPRECATED != 0 }

// Tentative says that the address does not work: it is still being looked
// whether another has it, or another has.
func (a Address) Tentative() bool {
	return a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0
}

// Temporary says that the address is an IPv6 one that changes for privacy.
func (a Address) Temporary() bool { return a.Prefix.Addr().Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0 }

// Addresses reads the addresses of the link that has this index, 0 for those
// of all links: IPv4 before IPv6, in the kernel's order, which has those that
// it prefers as sources first. A link that is gone has none.
func (h *Handle) Addresses(index int) ([]Address, error) {
	all, err := h.addresses(index)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of link %d: %w", index, err)
	}
	return all, nil
}

func (h *Handle) addresses(index int) (all []Address, err error) {
	h.b.Reset()
	h.b.Begin(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	addressHeader(&h.b, unix.AF_UNSPEC, 0, 0, index)
	err = h.list(unix.RTM_NEWADDR, func() { all = all[:0] }, func(p []byte) {
		if a, ok := parseAddress(p); ok && (index == 0 || a.Index == index) {
			all = append(all, a)
		}
	})
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return all, err
}

// addressHeader appends struct ifaddrmsg.
func addressHeader(b *netlink.Builder, family, bits, flags uint8, index int) {
	var m [unix.SizeofIfAddrmsg]byte
	m[0], m[1], m[2] = family, bits, flags
	order.PutUint32(m[4:], uint32(index))
	b.Raw(m[:])
}

// parseAddress reads the payload of RTM_NEWADDR or RTM_DELADDR.
func parseAddress(p []byte) (Address, bool) {
	if len(p) < unix.SizeofIfAddrmsg {
		return Address{}, false
	}
	family, bits := p[0], int(p[1])
	a := Address{Index: int(int32(order.Uint32(p[4:]))), Scope: p[3], Flags: uint32(p[2])}
	var own, other netip.Addr
	for kind, value := range netlink.Attributes(p[unix.SizeofIfAddrmsg:]) {
		switch kind {
		case unix.IFA_LOCAL:
			own = parseIP(family, value)
		case unix.IFA_ADDRESS:
			other = parseIP(family, value)
		case unix.IFA_FLAGS:
			a.Flags = netlink.Number32(value)
		}
	}
	// Of a link between two the local address is its own; IPv6 has it alone
	// there.
	if !own.IsValid() {
		own = other
	}
	a.Prefix = netip.PrefixFrom(own, bits)
	return a, a.Index > 0 && a.Prefix.IsValid()
}

// parseIP reads an address of a family, which is invalid if it is none.
func parseIP(family uint8, value []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(value)
	if family == unix.AF_INET && a.Is4() || family == unix.AF_INET6 && a.Is6() {
		return a
	}
	return netip.Addr{}
}

// family is that of an address.
func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// ip appends an address.
func ip(b *netlink.Builder, kind uint16, a netip.Addr) {
	if a.Is4() {
		v := a.As4()
		b.Bytes(kind, v[:])
		return
	}
	v := a.As16()
	b.Bytes(kind, v[:])
}

// validAddress says why a link cannot have this address.
func validAddress(p netip.Prefix) error {
	a := p.Addr()
	if !p.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("address %s is none that a link can have", p)
	}
	return nil
}

// addAddress builds the message that gives a link an address, with flags of
// netlink's. IPv6 works at once, without a look whether another has it: the
// addresses are given out by one who knows.
func addAddress(b *netlink.Builder, index int, p netip.Prefix, flags uint16) {
	a := p.Addr()
	b.Begin(unix.RTM_NEWADDR, unix.NLM_F_CREATE|flags)
	if a.Is6() {
		addressHeader(b, unix.AF_INET6, uint8(p.Bits()), unix.IFA_F_NODAD, index)
		ip(b, unix.IFA_ADDRESS, a)
		return
	}
	addressHeader(b, unix.AF_INET, uint8(p.Bits()), 0, index)
	ip(b, unix.IFA_LOCAL, a)
	ip(b, unix.IFA_ADDRESS, a)
	if p.Bits() < 31 {
		ip(b, unix.IFA_BROADCAST, broadcast(p))
	}
}

func deleteAddress(b *netlink.Builder, index int, p netip.Prefix) {
	b.Begin(unix.RTM_DELADDR, 0)
	addressHeader(b, family(p.Addr()), uint8(p.Bits()), 0, index)
	ip(b, unix.IFA_LOCAL, p.Addr())
}

// broadcast is the last address of an IPv4 prefix.
func broadcast(p netip.Prefix) netip.Addr {
	v := p.Addr().As4()
	for i := range v {
		v[i] |= byte(uint64(0xffffffff) >> p.Bits() >> (24 - 8*i))
	}
	return netip.AddrFrom4(v)
}
