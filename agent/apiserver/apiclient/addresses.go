package apiclient

import "net/netip"

// Addresses are where the server is, as far as is known: the address in its URL,
// and the other ends of the connections that there are, which may be a proxy's.
// It asks nobody, and does not block.
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
