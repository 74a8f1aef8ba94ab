package routes

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// watch calls told when a route of this package was deleted, in the network
// namespace of the calling thread, until the context ends; it returns nil then.
// Programs that configure links of this host may delete all routes but their own.
func watch(ctx context.Context, told func()) error {
	m, err := netlink.Listen(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	return m.Run(ctx, func(kind uint16, payload []byte) {
		// rtm_protocol of struct rtmsg
		if kind == unix.RTM_DELROUTE && len(payload) >= unix.SizeofRtMsg && payload[5] == Protocol {
			told()
		}
	}, told)
}
