package podnet

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/link"
	"github.com/tinylet/tinylet/net/nft"
)

// Watch calls notify after each change of the rules that all pods share, in the network
// namespace of the calling thread, until ctx ends; it returns nil then. Host ports of
// pods are not reported. Changes by this package are. notify must not block.
//
// If somebody removes the rules that protect 127.0.0.0/8, Watch disables routing to it
// from the bridge before it calls notify. Ensure restores both.
func Watch(ctx context.Context, bridge string, notify func()) error {
	socket, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("subscribe to nftables: %w", err)
	}
	return link.Receive(ctx, socket, func(kind uint16, payload []byte) {
		if nft.Unguards(kind, payload) {
			protect(bridge)
		}
		if nft.Shared(kind, payload) {
			notify()
		}
	}, func() {
		protect(bridge)
		notify()
	})
}

// protect does what is possible before the next Ensure, which reports errors.
func protect(bridge string) {
	table, err := nft.Open()
	if err != nil {
		return
	}
	defer table.Close()
	_ = closeUnguarded(table, bridge)
}

// Dismantle removes the tables of rules. Before that it disables routing from the bridge to
// 127.0.0.0/8, which is unsafe without them. A kernel without nftables has no tables.
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
