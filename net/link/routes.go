package link

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// RouteFilter is which routes are read.
type RouteFilter struct {
	Family   uint8  // unix.AF_INET or AF_INET6; 0 is both
	Table    uint32 // 0 is the main one
	Link     int    // the index, 0 for all
	Protocol uint8  // unix.RTPROT_*, 0 for all
}

// Routes reads routes, without what the kernel has only cached. A table or a
// link that is not there has none.
func (h *Handle) Routes(f RouteFilter) ([]Route, error) {
	all, err := h.routes(f)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return all, nil
}

func (h *Handle) routes(f RouteFilter) (all []Route, err error) {
	f.Table = cmp.Or(f.Table, unix.RT_TABLE_MAIN)
	for _, fam := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if f.Family != 0 && f.Family != fam {
			continue
		}
		if all, err = h.routesOf(fam, f, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (h *Handle) routesOf(fam uint8, f RouteFilter, all []Route) ([]Route, error) {
	h.b.Reset()
	h.b.Begin(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	m := [unix.SizeofRtMsg]byte{0: fam, 4: tableByte(f.Table), 5: f.Protocol}
	h.b.Raw(m[:])
	h.b.Uint32(unix.RTA_TABLE, f.Table)
	if f.Link != 0 {
		h.b.Uint32(unix.RTA_OIF, uint32(f.Link))
	}
	before := len(all)
	err := h.list(unix.RTM_NEWROUTE, func() { all = all[:before] }, func(p []byte) {
		// A kernel without IPv6 answers with IPv4.
		parseRoute(p, func(r Route) {
			if family(r.Dst.Addr()) == fam && f.takes(r) {
				all = append(all, r)
			}
		})
	})
	// No such table, link or family.
	if errors.Is(err, unix.ENOENT) || errors.Is(err, ErrNotFound) || errors.Is(err, unix.EAFNOSUPPORT) {
		return all[:before], nil
	}
	return all, err
}

// takes is the filter where the kernel does not heed it.
func (f RouteFilter) takes(r Route) bool {
	return r.Table == f.Table && (f.Link == 0 || r.Link == f.Link) && (f.Protocol == 0 || r.Protocol == f.Protocol)
}

// parseRoute reads the payload of RTM_NEWROUTE or RTM_DELROUTE, and calls each
// for every way.
func parseRoute(p []byte, each func(Route)) {
	if len(p) < unix.SizeofRtMsg || order.Uint32(p[8:])&unix.RTM_F_CLONED != 0 {
		return
	}
	fam, bits := p[0], int(p[1])
	r := Route{Table: uint32(p[4]), Protocol: p[5], Type: p[7]}
	r.hopFlags(order.Uint32(p[8:]))
	var dst netip.Addr
	switch fam {
	case unix.AF_INET:
		dst = netip.IPv4Unspecified()
	case unix.AF_INET6:
		dst = netip.IPv6Unspecified()
	default:
		return
	}
	var ways []byte
	for kind, value := range netlink.Attributes(p[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			dst = parseIP(fam, value)
		case unix.RTA_OIF:
			r.Link = int(int32(netlink.Number32(value)))
		case unix.RTA_PREFSRC:
			r.Source = parseIP(fam, value)
		case unix.RTA_PRIORITY:
			r.Metric = netlink.Number32(value)
		case unix.RTA_TABLE:
			r.Table = netlink.Number32(value)
		case unix.RTA_MULTIPATH:
			ways = value
		default:
			r.gateway(fam, kind, value)
		}
	}
	if r.Dst = netip.PrefixFrom(dst, bits); !r.Dst.IsValid() {
		return
	}
	if ways == nil {
		each(r)
		return
	}
	r.parseWays(fam, ways, each)
}

// parseWays reads the ways of a route (struct rtnexthop, each with attributes).
func (r Route) parseWays(fam uint8, ways []byte, each func(Route)) {
	for len(ways) >= unix.SizeofRtNexthop {
		length := int(order.Uint16(ways))
		if length < unix.SizeofRtNexthop || length > len(ways) {
			return
		}
		way := r
		way.Link = int(int32(order.Uint32(ways[4:])))
		way.hopFlags(uint32(ways[2]))
		for kind, value := range netlink.Attributes(ways[unix.SizeofRtNexthop:length]) {
			way.gateway(fam, kind, value)
		}
		each(way)
		ways = ways[min((length+3)&^3, len(ways)):]
	}
}

func (r *Route) hopFlags(flags uint32) {
	r.OnLink = flags&unix.RTNH_F_ONLINK != 0
	r.Dead = flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0
}

// gateway reads an attribute if it is one of a gateway, which may be of the
// other family (RTA_VIA).
func (r *Route) gateway(fam uint8, kind uint16, value []byte) {
	switch {
	case kind == unix.RTA_GATEWAY:
		r.Gateway = parseIP(fam, value)
	case kind == unix.RTA_VIA && len(value) > 2:
		r.Gateway = parseIP(uint8(order.Uint16(value)), value[2:])
	}
}
