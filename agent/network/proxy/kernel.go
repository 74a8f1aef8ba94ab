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
// without link-local ones.
func HostAddresses() (own, routers []netip.Addr, err error) {
	h, err := link.Open()
	if err != nil {
		return nil, nil, err
	}
	defer h.Close()
	addresses, err := h.Addresses(0)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range addresses {
		own = append(own, a.Prefix.Addr())
	}
	up, err := h.Uplink()
	if err != nil && !errors.Is(err, link.ErrNoRoute) {
		return nil, nil, err
	}
	for _, a := range []netip.Addr{up.Gateway4, up.Gateway6} {
		if a.IsValid() && !a.IsLinkLocalUnicast() {
			routers = append(routers, a)
		}
	}
	return own, routers, nil
}
