package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// Guarded reports whether the chain is in force that keeps others from what
// listens on 127.0.0.0/8 alone. Without it, route_localnet lets them in.
func (t *Table) Guarded() (bool, error) {
	if err := t.verifyTable(nil); err != nil {
		return false, ignoreDifference(err)
	}
	hooked := false
	want := chain{name: chainGuard, kind: "filter", hook: unix.NF_INET_PRE_ROUTING, priority: -300, rules: guard()}
	err := t.list(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, unix.NFTA_CHAIN_TABLE, "", func(a []byte) {
		hooked = hooked || netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_NAME)) == chainGuard && want.is(a)
	})
	if err != nil || !hooked {
		return false, err
	}
	var have [][]byte
	err = t.eachRule(chainGuard, func(_ string, a []byte) {
		if len(have) == 0 {
			// Its comment is of all rules, which may be another base's.
			want.rules[0].comment = comment(netlink.Attribute(a, unix.NFTA_RULE_USERDATA))
		}
		have = append(have, a)
	})
	return err == nil && slices.EqualFunc(want.rules, have, (*rule).is), err
}

// Unguards reports whether a notification of nftables may be of the end of what
// Guarded asks for.
func Unguards(kind uint16, payload []byte) bool {
	if !Shared(kind, payload) || payload[0] != unix.NFPROTO_INET {
		return false
	}
	name := uint16(unix.NFTA_RULE_CHAIN)
	switch kind & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_NEWTABLE:
		return true
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		name = unix.NFTA_CHAIN_NAME
	}
	return netlink.Text(netlink.Attribute(payload[headerLen:], name)) == chainGuard
}
