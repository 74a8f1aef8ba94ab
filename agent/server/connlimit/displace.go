package connlimit

import (
	"net"
	"net/netip"
)

// pendingToDisplace returns the oldest connection of the source with the most pending
// connections, so that a source that opens many displaces its own. It returns nil if
// pending is empty.
func pendingToDisplace(pending []*Conn) (out *Conn) {
	most := 0
	for i, c := range pending {
		n := 0
		for _, other := range pending[i:] {
			if other.source == c.source {
				n++
			}
		}
		if n > most {
			out, most = c, n
		}
	}
	return out
}

// idleToDisplace returns the promoted connection to close for a new one of user, nil if there
// is none: among the users with an idle connection, it takes the user with the most
// promoted ones, and returns its oldest idle one. That user must still have at least
// as many promoted connections as user afterwards.
func idleToDisplace(promoted []*Conn, user string) (out *Conn) {
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

// source returns the source of a connection: the IPv4 address, or the /64 prefix of an
// IPv6 address, because one host can have all addresses of such a prefix.
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
	out, _ := from.Prefix(bits) // all connections without an address share the zero Prefix
	return out
}
