package apiclient

import (
	"net"
	"net/netip"
	"slices"
)

// Reroute closes the connections that the kernel would make from another link,
// or from another address in place of one that is gone: they are dead, which
// only the answer that does not come would tell, half a minute later. Those for
// whose other end there is no way at all stay, since the same one may come back.
// It asks the kernel alone, and does not block.
func (c *Client) Reroute() {
	t := c.transport
	for _, conn := range t.open() {
		local := addressOf(conn.LocalAddr())
		source := t.source(conn.RemoteAddr())
		if local.IsValid() && source.IsValid() && source != local && !share(local, source) {
			_ = conn.Close() // a closed connection has nothing more to tell
		}
	}
}

// sourceOf is the address from which the kernel would send to far.
func sourceOf(far net.Addr) netip.Addr {
	conn, err := net.Dial("udp", far.String()) // sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	return addressOf(conn.LocalAddr())
}

func addressOf(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// share says whether a link has both addresses, as it has while temporary ones
// follow each other (RFC 8981).
func share(a, b netip.Addr) bool {
	links, err := net.Interfaces()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(links, func(link net.Interface) bool {
		addresses, _ := link.Addrs() // of one that is gone: none
		has := func(want netip.Addr) bool {
			return slices.ContainsFunc(addresses, func(have net.Addr) bool {
				prefix, err := netip.ParsePrefix(have.String())
				return err == nil && prefix.Addr().Unmap() == want
			})
		}
		return has(a) && has(b)
	})
}
