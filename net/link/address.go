package link

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Address is an address of a link.
type Address struct {
	Index  int // of the link
	Prefix netip.Prefix
	Scope  uint8  // unix.RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RT_SCOPE_HOST, ...
	Flags  uint32 // unix.IFA_F_*
}

// Global reports whether the address is valid beyond the link.
func (a Address) Global() bool { return a.Scope < unix.RT_SCOPE_LINK }

// Deprecated reports whether new connections should not use the address.
func (a Address) Deprecated() bool { return a.Flags&unix.IFA_F_DEPRECATED != 0 }

// Tentative reports whether the address is unusable: duplicate address detection is
// not finished or found another host with the address.
func (a Address) Tentative() bool {
	return a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0
}

// Temporary reports whether the address is an IPv6 privacy address, which changes.
func (a Address) Temporary() bool { return a.Prefix.Addr().Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0 }

// Addresses returns the addresses of the link with this index, 0 for those of all
// links: IPv4 before IPv6, in the kernel's order, which has preferred source
// addresses first. A link that does not exist has none.
func (h *Handle) Addresses(index int) ([]Address, error) {
	all, err := h.listAddresses(index)
	if err != nil {
		return nil, fmt.Errorf("list addresses of link %d: %w", index, err)
	}
	addresses := make([]Address, 0, len(all))
	for _, a := range all {
		if own, ok := addressOf(a); ok {
			addresses = append(addresses, own)
		}
	}
	return addresses, nil
}

func (h *Handle) listAddresses(index int) ([]netlink.Addr, error) {
	var of netlink.Link
	if index != 0 {
		of = withIndex(index)
	}
	return read(func() ([]netlink.Addr, error) { return h.rt.AddrList(of, netlink.FAMILY_ALL) })
}

// addressOf returns an address of the library. ok is false if it is not valid. For
// a point-to-point address the prefix length is that of the peer.
func addressOf(a netlink.Addr) (own Address, ok bool) {
	if a.IPNet == nil {
		return Address{}, false
	}
	network := *a.IPNet
	if a.Peer != nil {
		network.Mask = a.Peer.Mask
	}
	own = Address{Index: a.LinkIndex, Prefix: prefixOf(&network), Scope: uint8(a.Scope), Flags: uint32(a.Flags)}
	return own, own.Index > 0 && own.Prefix.IsValid()
}

// newAddr returns the library's form of an address. An IPv6 address is usable at
// once, without duplicate address detection: the addresses are allocated.
func newAddr(index int, p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNetOf(p), LinkIndex: index}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// prefixOf converts a network; the zero value is not valid. IPv4 addresses may have
// 4 or 16 bytes, their masks have 4.
func prefixOf(n *net.IPNet) netip.Prefix {
	a := addrOf(n.IP)
	if len(n.Mask) == net.IPv4len {
		a = a.Unmap()
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a, bits)
}

func ipNetOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// addrOf converts an address; the zero value is not valid.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a
}

// validAddress returns why a link cannot have an address, nil if it can.
func validAddress(p netip.Prefix) error {
	a := p.Addr()
	if !p.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("a link cannot have address %s", p)
	}
	return nil
}
