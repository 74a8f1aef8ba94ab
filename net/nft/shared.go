package nft

import (
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Shared says whether a notification of nftables (group NFNLGRP_NFTABLES) is
// of what all pods share: the table itself, its own chains and their rules, and
// those that stand before all services, and the table of Senders. What comes and goes with pods and
// services is not.
func Shared(kind uint16, payload []byte) bool {
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(payload) < headerLen || payload[0] != unix.NFPROTO_INET && payload[0] != unix.NFPROTO_BRIDGE {
		return false
	}
	name, attributes := uint16(0), payload[headerLen:]
	switch kind & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_NEWTABLE:
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		name = unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		name = unix.NFTA_RULE_CHAIN
	default:
		return false
	}
	// NFTA_TABLE_NAME, NFTA_CHAIN_TABLE and NFTA_RULE_TABLE are one number.
	if netlink.Text(netlink.Attribute(attributes, unix.NFTA_TABLE_NAME)) != tableName {
		return false
	}
	if name == 0 {
		return true
	}
	if payload[0] == unix.NFPROTO_BRIDGE {
		return true // there is no chain of a single pod
	}
	switch netlink.Text(netlink.Attribute(attributes, name)) {
	case chainGuard, chainPrerouting, chainOutput, chainHostPorts, chainPostrouting, chainLeaving,
		chainServices, chainReject, chainServicesPre, chainServicesOutput, chainServicesPosting:
		return true
	}
	return false
}
