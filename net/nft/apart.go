package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Apart is what no service has. Connections to it are led nowhere else.
type Apart struct {
	// Hosts are addresses of other machines, such as the API server's.
	Hosts []netip.Addr
	// Ports are ports of TCP on this machine's own addresses, whichever these
	// are.
	Ports []uint16
}

// checked is the same in order, each once, and without what is no address.
func (a Apart) checked() Apart {
	var out Apart
	for _, h := range a.Hosts {
		if usable(h) {
			out.Hosts = append(out.Hosts, h.Unmap())
		}
	}
	slices.SortFunc(out.Hosts, netip.Addr.Compare)
	out.Hosts = slices.Compact(out.Hosts)
	out.Ports = slices.Clone(a.Ports)
	slices.Sort(out.Ports)
	out.Ports = slices.Compact(out.Ports)
	return out
}

// rules go back before services are looked for.
func (a Apart) rules() []*rule {
	var rules []*rule
	for _, h := range a.Hosts {
		rules = append(rules, when("of no service").destination(netip.PrefixFrom(h, h.BitLen())).back())
	}
	for _, p := range a.Ports {
		own := when("the node's own port").l4(unix.IPPROTO_TCP).transport(2, 2, 0).equal(binary.BigEndian.AppendUint16(nil, p))
		rules = append(rules, own.local().back())
	}
	return rules
}
