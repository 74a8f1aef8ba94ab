package proxy

import (
	"errors"
	"net/netip"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Clear removes the rules of Services. A kernel without nftables has none.
func Clear() error {
	table, err := nft.Open()
	if err == nil {
		err = errors.Join(table.ClearServices(), table.Close())
	}
	if errors.As(err, new(*nft.Unsupported)) {
		return nil
	}
	return err
}

// HostAddresses returns this machine's addresses, and those of the routers of its uplink,
// without link-local ones. After an error of the kernel, what could not be read is left
// out, and the error is not returned.
func HostAddresses() (own, routers []netip.Addr) {
	h, err := link.Open()
	if err != nil {
		return nil, nil
	}
	defer h.Close()
	addresses, _ := h.Addresses(0)
	for _, a := range addresses {
		own = append(own, a.Prefix.Addr())
	}
	up, _ := h.Uplink()
	for _, a := range []netip.Addr{up.Gateway4, up.Gateway6} {
		if a.IsValid() && !a.IsLinkLocalUnicast() {
			routers = append(routers, a)
		}
	}
	return own, routers
}
