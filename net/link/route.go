package link

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Route is one way to a destination. Of a route with several ways (multipath)
// each is a Route when it is read.
type Route struct {
	Dst     netip.Prefix // 0.0.0.0/0 and ::/0 are the default routes
	Gateway netip.Addr   // the zero value: the destination is on the link
	Link    int          // the index; 0 where the gateway tells it
	Source  netip.Addr   // that packets have unless they chose one; may be zero
	Metric  uint32       // the lowest wins; 0 is the kernel's, 1024 for IPv6
	Table   uint32       // 0 is the main one
	// Protocol is who made it, unix.RTPROT_*; 0 is RTPROT_BOOT, as of ip.
	Protocol uint8
	Type     uint8 // unix.RTN_*; 0 is RTN_UNICAST
	OnLink   bool  // the gateway is reached though no address's prefix has it
	// Dead says that the link is down or has no carrier. It is only read.
	Dead bool
}

// Default says whether it leads everywhere.
func (r Route) Default() bool { return r.Dst.IsValid() && r.Dst.Bits() == 0 }

// check says why there cannot be such a route.
func (r Route) check() error {
	switch {
	case !r.Dst.IsValid() || r.Dst.Addr().Is4In6() || r.Dst != r.Dst.Masked():
		return fmt.Errorf("%s is no destination", r.Dst)
	case r.Gateway.Is4In6(), r.Gateway.Is4() && r.Dst.Addr().Is6():
		return fmt.Errorf("%s is no gateway to %s", r.Gateway, r.Dst)
	case r.Source.IsValid() && r.Source.Is4() != r.Dst.Addr().Is4():
		return fmt.Errorf("%s is no source for %s", r.Source, r.Dst)
	}
	return nil
}

// String is the route for an error.
func (r Route) String() string {
	s := "route " + r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	return s
}

// put builds a message about a route. What is removed is found by what the
// Route says; nothing that it leaves open matters.
func (r Route) put(b *netlink.Builder, kind, flags uint16) {
	table := cmp.Or(r.Table, unix.RT_TABLE_MAIN)
	m := [unix.SizeofRtMsg]byte{
		0: family(r.Dst.Addr()), 1: uint8(r.Dst.Bits()), 4: tableByte(table),
		5: r.Protocol, 6: unix.RT_SCOPE_NOWHERE, 7: r.Type,
	}
	if kind == unix.RTM_NEWROUTE {
		m[5], m[6], m[7] = cmp.Or(r.Protocol, unix.RTPROT_BOOT), r.scope(), cmp.Or(r.Type, unix.RTN_UNICAST)
	}
	if r.OnLink {
		order.PutUint32(m[8:], unix.RTNH_F_ONLINK)
	}
	b.Begin(kind, flags)
	b.Raw(m[:])
	b.Uint32(unix.RTA_TABLE, table)
	if r.Dst.Bits() > 0 {
		ip(b, unix.RTA_DST, r.Dst.Addr())
	}
	r.putGateway(b)
	if r.Link != 0 {
		b.Uint32(unix.RTA_OIF, uint32(r.Link))
	}
	if r.Source.IsValid() {
		ip(b, unix.RTA_PREFSRC, r.Source)
	}
	if r.Metric != 0 {
		b.Uint32(unix.RTA_PRIORITY, r.Metric)
	}
}

func (r Route) putGateway(b *netlink.Builder) {
	switch {
	case !r.Gateway.IsValid():
	case r.Gateway.Is4() == r.Dst.Addr().Is4():
		ip(b, unix.RTA_GATEWAY, r.Gateway)
	default:
		var via [2 + 16]byte
		order.PutUint16(via[:], unix.AF_INET6)
		v := r.Gateway.As16()
		copy(via[2:], v[:])
		b.Bytes(unix.RTA_VIA, via[:])
	}
}

// scope is how far an IPv4 route leads; IPv6 has none.
func (r Route) scope() uint8 {
	if r.Dst.Addr().Is4() && !r.Gateway.IsValid() && cmp.Or(r.Type, unix.RTN_UNICAST) == unix.RTN_UNICAST {
		return unix.RT_SCOPE_LINK
	}
	return unix.RT_SCOPE_UNIVERSE
}

// AddRoute adds a route; one that is there already, or another to the same
// destination with the same metric, gives fs.ErrExist.
func (h *Handle) AddRoute(r Route) error {
	return h.route("add", r, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
}

// ReplaceRoute adds a route in the place of the one to the same destination
// with the same metric, if there is one.
func (h *Handle) ReplaceRoute(r Route) error {
	return h.route("replace", r, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
}

// DeleteRoute removes a route, nil if there is none. What r leaves open, such
// as its metric, fits any: the first that the kernel finds is removed.
func (h *Handle) DeleteRoute(r Route) error {
	err := h.route("delete", r, unix.RTM_DELROUTE, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (h *Handle) route(verb string, r Route, kind, flags uint16) error {
	err := r.check()
	if err == nil {
		h.b.Reset()
		r.put(&h.b, kind, flags)
		err = h.do()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, r, err)
	}
	return nil
}

// tableByte is the table in struct rtmsg, where only small ones fit.
func tableByte(table uint32) uint8 {
	if table > 0xff {
		return unix.RT_TABLE_COMPAT
	}
	return uint8(table)
}
