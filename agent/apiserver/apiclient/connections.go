package apiclient

import (
	"net"
	"net/netip"
	"slices"
)

// Addresses returns the known addresses of the API server: the address in its URL,
// and the remote addresses of the open connections, which may be a proxy's. It
// resolves no names and does not block.
func (c *Client) Addresses() []netip.Addr {
	var all []netip.Addr
	if a, err := netip.ParseAddr(c.transport.host); err == nil {
		all = append(all, a.Unmap().WithZone(""))
	}
	for _, conn := range c.transport.open() {
		if a := addressOf(conn.RemoteAddr()); a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// CloseStaleConnections closes the connections that the kernel would now make from
// another link, or from another address in place of one that is gone. They are dead,
// which otherwise only a timeout of some 25 s detects. Connections whose remote address
// has no route stay, because the same route may come back. CloseStaleConnections only
// queries the kernel and does not block on the network.
func (c *Client) CloseStaleConnections() {
	t := c.transport
	for _, conn := range t.open() {
		local := addressOf(conn.LocalAddr())
		source := t.source(conn.RemoteAddr())
		if local.IsValid() && source.IsValid() && source != local && !share(local, source) {
			_ = conn.Close() // the error does not matter
		}
	}
}

// sourceOf returns the source address that the kernel would use for far; the zero
// Addr if there is no route.
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

// share reports whether one link has both addresses, as while temporary addresses
// are replaced (RFC 8981). It returns true if the links cannot be listed.
func share(a, b netip.Addr) bool {
	links, err := net.Interfaces()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(links, func(link net.Interface) bool {
		addresses, _ := link.Addrs() // none if the link is gone
		has := func(want netip.Addr) bool {
			return slices.ContainsFunc(addresses, func(have net.Addr) bool {
				prefix, err := netip.ParsePrefix(have.String())
				return err == nil && prefix.Addr().Unmap() == want
			})
		}
		return has(a) && has(b)
	})
}
