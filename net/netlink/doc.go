// Package netlink owns the wire of netlink: building messages, sending them as
// one batch, waiting for what the kernel says of each, dumps, and
// notifications. It knows no family's attributes: net/link speaks rtnetlink
// with it, net/nft nftables.
//
// It is written on the kernel's format (Documentation/userspace-api/netlink)
// rather than on github.com/vishvananda/netlink and
// github.com/google/nftables: measured with Go 1.26 for linux/arm64, stripped,
// these add 1.1 MB to the agent (30.5 where 30 are the budget).
package netlink
