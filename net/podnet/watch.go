package podnet

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
	"github.com/tinylet/tinylet/net/nft"
)

// Watch calls told whenever the rules that all pods share have changed, in the
// network namespace of the calling thread, until the context ends; it returns
// nil then. Ports that come and go with pods are not told. Told must not block;
// it is called for what this package does as well.
func Watch(ctx context.Context, told func()) error {
	m, err := netlink.Listen(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	return m.Run(ctx, func(kind uint16, payload []byte) {
		if nft.Shared(kind, payload) {
			told()
		}
	}, told)
}
