package connlimit

import (
	"net"
	"net/netip"
)

// ofLargestSource is the oldest connection of the source that has the most, so
// that a source that opens many displaces its own.
func ofLargestSource(pending []*Conn) (out *Conn) {
	most := 0
	for i, c := range pending {
		n := 0
		for _, other := range pending[i:] {
			if other.from == c.from {
				n++
			}
		}
		if n > most {
			out, most = c, n
		}
	}
	return out
}

// yields is the promoted connection that gives its place to one of a user: the
// oldest idle one of the user who has the most places among those who have an
// idle one, if that user then still has as many as the other.
func yields(promoted []*Conn, user string) (out *Conn) {
	places := make(map[string]int)
	for _, c := range promoted {
		places[c.user]++
	}
	most := places[user] + 1
	for _, c := range promoted {
		if places[c.user] > most && c.requests.Load() == 0 {
			out, most = c, places[c.user]
		}
	}
	return out
}

// source is where a connection is from: an address of IPv4, or the 64 bits that
// are one host's in IPv6.
func source(address net.Addr) netip.Prefix {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	from := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if from.Is6() {
		bits = 64
	}
	out, err := from.Prefix(bits)
	if err != nil { // no address, which is one too
		return netip.Prefix{}
	}
	return out
}
