package podnet

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
	"github.com/tinylet/tinylet/net/nft"
)

// Watch calls told whenever the rules that all pods share have changed, in the
// network namespace of the calling thread, until the context ends; it returns
// nil then. Ports that come and go with pods are not told. Told must not block;
// it is called for what this package does as well.
//
// Where somebody has taken away the rules that guard 127.0.0.0/8, what comes by
// the bridge is no more routed there, at once; Ensure makes both anew.
func Watch(ctx context.Context, bridge string, told func()) error {
	m, err := netlink.Listen(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	return m.Run(ctx, func(kind uint16, payload []byte) {
		if nft.Unguards(kind, payload) {
			shut(bridge)
		}
		if nft.Shared(kind, payload) {
			told()
		}
	}, func() {
		shut(bridge)
		told()
	})
}

// shut does what can be done until Ensure is called, which says what fails.
func shut(bridge string) {
	table, err := nft.Open()
	if err != nil {
		return
	}
	defer table.Close()
	_ = closeUnguarded(table, bridge)
}

// Dismantle takes away all rules, and what they make harmless before them. A
// kernel that can have none has none.
func Dismantle(bridge string) error {
	if err := closeLocalhost(bridge); err != nil {
		return err
	}
	table, err := nft.Open()
	if err == nil {
		err = errors.Join(table.Delete(), table.Close())
	}
	senders, sendersErr := nft.OpenSenders()
	if sendersErr == nil {
		sendersErr = errors.Join(senders.Delete(), senders.Close())
	}
	return errors.Join(absent(err), absent(sendersErr))
}
