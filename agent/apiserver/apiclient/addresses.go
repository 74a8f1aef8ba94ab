package apiclient

import "net/netip"

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
