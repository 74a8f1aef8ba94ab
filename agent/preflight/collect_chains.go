package preflight

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netlink"
)

// chainFamilies are the nftables families that see packets between pods and the
// uplinks, with their names in the nft program.
var chainFamilies = map[uint8]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6"}

// verdictDrop is NF_DROP of linux/netfilter.h.
const verdictDrop = 0

// forwarding is the collected state of the chains in the forward hook.
type forwarding struct {
	policy map[DroppingChain]bool // whether the policy of a chain is drop
	last   map[DroppingChain]bool // whether its last rule drops all packets
	named  map[[2]string]bool     // whether a rule of a family and table names the bridge
}

// droppingChains returns the chains in the forward hook that drop packets that none
// of their rules accept, by their policy or by their last rule. It omits tables
// with a rule that names the bridge: their author has considered the pods. It reads
// the network namespace of the calling thread.
func droppingChains(bridge string) ([]DroppingChain, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var f forwarding
	if err := listRules(c, unix.NFT_MSG_GETCHAIN, func() { f.policy = map[DroppingChain]bool{} }, f.chain); err != nil {
		return nil, err
	}
	if len(f.policy) == 0 {
		return nil, nil
	}
	begin := func() { f.last, f.named = map[DroppingChain]bool{}, map[[2]string]bool{} }
	each := func(family string, a []byte) { f.rule(family, a, []byte(bridge)) }
	if err := listRules(c, unix.NFT_MSG_GETRULE, begin, each); err != nil {
		return nil, err
	}
	return f.dropping(), nil
}

// listRules dumps all chains or rules of chainFamilies.
func listRules(c *netlink.Conn, kind uint16, begin func(), each func(family string, attributes []byte)) error {
	const headerLen = 4 // struct nfgenmsg
	var b netlink.Builder
	b.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP)
	b.Raw(make([]byte, headerLen)) // of all families
	return c.Dump(&b, begin, func(_ uint16, payload []byte) error {
		if len(payload) < headerLen {
			return nil
		}
		if family := chainFamilies[payload[0]]; family != "" {
			each(family, payload[headerLen:])
		}
		return nil
	})
}

func (f *forwarding) chain(family string, a []byte) {
	hook := netlink.Attribute(a, unix.NFTA_CHAIN_HOOK)
	if hook == nil || number(netlink.Attribute(hook, unix.NFTA_HOOK_HOOKNUM)) != unix.NF_INET_FORWARD {
		return
	}
	c := DroppingChain{family, netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_TABLE)), netlink.Text(netlink.Attribute(a, unix.NFTA_CHAIN_NAME))}
	policy := netlink.Attribute(a, unix.NFTA_CHAIN_POLICY)
	f.policy[c] = policy != nil && number(policy) == verdictDrop
}

// rule handles one rule. The kernel lists the rules of a chain in order.
func (f *forwarding) rule(family string, a, bridge []byte) {
	c := DroppingChain{family, netlink.Text(netlink.Attribute(a, unix.NFTA_RULE_TABLE)), netlink.Text(netlink.Attribute(a, unix.NFTA_RULE_CHAIN))}
	expressions := netlink.Attribute(a, unix.NFTA_RULE_EXPRESSIONS)
	if bytes.Contains(expressions, bridge) {
		f.named[[2]string{family, c.Table}] = true
	}
	if _, hooked := f.policy[c]; hooked {
		f.last[c] = dropsAll(expressions)
	}
}

// dropsAll reports whether a rule drops or rejects all packets.
func dropsAll(expressions []byte) bool {
	drops := false
	for _, e := range netlink.Attributes(expressions) {
		data := netlink.Attribute(e, unix.NFTA_EXPR_DATA)
		switch netlink.Text(netlink.Attribute(e, unix.NFTA_EXPR_NAME)) {
		case "counter", "log":
		case "reject":
			drops = true
		case "immediate":
			verdict := netlink.Attribute(netlink.Attribute(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
			code := netlink.Attribute(verdict, unix.NFTA_VERDICT_CODE)
			drops = code != nil && number(code) == verdictDrop
		default:
			return false // a condition, mostly
		}
	}
	return drops
}

func (f *forwarding) dropping() (all []DroppingChain) {
	for c, drops := range f.policy {
		if (drops || f.last[c]) && !f.named[[2]string{c.Family, c.Table}] {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b DroppingChain) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// number decodes a number in network byte order, as nftables has it. It returns a
// value without meaning for one that is too short.
func number(value []byte) uint32 {
	if len(value) < 4 {
		return 1<<32 - 1
	}
	return binary.BigEndian.Uint32(value)
}
