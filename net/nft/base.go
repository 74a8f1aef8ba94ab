package nft

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Base is the pod network of this node.
type Base struct {
	// Bridge is the bridge of the pods.
	Bridge string
	// Pods are the pod networks of this node: of IPv4, IPv6 or both.
	Pods []netip.Prefix
	// Direct are further destinations, besides Pods and multicast, that pods
	// reach with their own addresses: the routed pod networks of other nodes.
	Direct []netip.Prefix
	// Masquerade replaces the source address of what pods send elsewhere by the
	// node's address.
	Masquerade bool
}

// checked validates the base and returns it in the form that layout uses: the networks
// are sorted, and none is in another.
func (b Base) checked() (Base, error) {
	if !validInterface(b.Bridge) {
		return b, fmt.Errorf("bridge: invalid interface name %.40q", b.Bridge)
	}
	if len(b.Pods) == 0 {
		return b, errors.New("no pod network")
	}
	var err error
	if b.Pods, err = networks(b.Pods); err != nil {
		return b, fmt.Errorf("pod networks: %w", err)
	}
	if b.Direct, err = networks(b.Direct); err != nil {
		return b, fmt.Errorf("networks without masquerade: %w", err)
	}
	return b, nil
}

// validInterface reports whether the kernel accepts a name (dev_valid_name in
// net/core/dev.c).
func validInterface(name string) bool {
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/: \t\n\v\f\r\x00")
}

// networks sorts networks, and leaves out those that are in others.
func networks(all []netip.Prefix) ([]netip.Prefix, error) {
	sorted := make([]netip.Prefix, 0, len(all))
	for _, p := range all {
		if !p.IsValid() || p.Addr().Is4In6() {
			return nil, fmt.Errorf("invalid network %s", p)
		}
		sorted = append(sorted, p.Masked())
	}
	slices.SortFunc(sorted, netip.Prefix.Compare)
	// A network sorts before those in it.
	kept := sorted[:0]
	for _, p := range sorted {
		if n := len(kept); n == 0 || !kept[n-1].Contains(p.Addr()) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// layoutVersion changes with the names and kinds of chains and maps: Ensure then
// creates the contents of the table again. Other changes of rules need no new version.
const layoutVersion = 1

// The names of the chains.
const (
	chainGuard       = "guard"
	chainPrerouting  = "prerouting"
	chainOutput      = "output"
	chainHostPorts   = "host-ports"
	chainPostrouting = "postrouting"
	chainLeaving     = "leaving"
)

// chain is a chain with its rules. A chain without a hook is reached by jumps.
type chain struct {
	nftables.Chain
	rules []*rule
}

// hooked returns a chain with a hook.
func hooked(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...*rule) chain {
	accept := nftables.ChainPolicyAccept
	return chain{nftables.Chain{Name: name, Type: kind, Hooknum: hook, Priority: priority, Policy: &accept}, rules}
}

// jumped returns a chain without a hook.
func jumped(name string, rules ...*rule) chain {
	return chain{nftables.Chain{Name: name}, rules}
}

// encode returns the attributes that describe the chain.
func (c chain) encode() []netlink.Attribute {
	all := []netlink.Attribute{text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, c.Name)}
	if c.Hooknum == nil {
		return all
	}
	return append(all,
		text(unix.NFTA_CHAIN_TYPE, string(c.Type)),
		number(unix.NFTA_CHAIN_POLICY, uint32(*c.Policy)),
		nested(unix.NFTA_CHAIN_HOOK,
			number(unix.NFTA_HOOK_HOOKNUM, uint32(*c.Hooknum)),
			number(unix.NFTA_HOOK_PRIORITY, uint32(*c.Priority))))
}

// is reports whether a listed chain is of this kind.
func (c chain) is(listed attributes) bool {
	want := attributes(encode(c.encode()...))
	return want.text(unix.NFTA_CHAIN_TYPE) == listed.text(unix.NFTA_CHAIN_TYPE) &&
		want.number(unix.NFTA_CHAIN_POLICY) == listed.number(unix.NFTA_CHAIN_POLICY) &&
		want.value(unix.NFTA_CHAIN_HOOK).same(listed.value(unix.NFTA_CHAIN_HOOK))
}

func (b *batch) newChains(chains []chain) {
	for _, c := range chains {
		b.add(unix.NFT_MSG_NEWCHAIN, netlink.Create, c.encode()...)
	}
}

func (b *batch) newRules(chains []chain) {
	for _, c := range chains {
		for _, r := range c.rules {
			b.newRule(c.Name, r)
		}
	}
}

// flush deletes all rules of a chain.
func (b *batch) flush(chain string) {
	b.add(unix.NFT_MSG_DELRULE, 0, text(unix.NFTA_RULE_TABLE, tableName), text(unix.NFTA_RULE_CHAIN, chain))
}

func (b *batch) deleteChain(name string) {
	b.add(unix.NFT_MSG_DELCHAIN, 0, text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, name))
}

// The networks that the rules distinguish.
var (
	loopback   = netip.MustParsePrefix("127.0.0.0/8")
	loopback6  = netip.MustParsePrefix("::1/128")
	multicast4 = netip.MustParsePrefix("224.0.0.0/4")
	multicast6 = netip.MustParsePrefix("ff00::/8")
)

// layout returns all chains of a checked base. The comment of the first rule of
// the chain guard identifies the rules.
func (b Base) layout() []chain {
	return []chain{
		jumped(chainHostPorts, hostPorts()...),
		jumped(chainLeaving, b.leaving()...),
		guard(b.stamp()),
		hooked(chainPrerouting, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, toHostPorts()),
		hooked(chainOutput, nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest,
			when("the kernel lets nobody else see ::1").daddr(loopback6).returns(), toHostPorts()),
		hooked(chainPostrouting, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, b.postrouting()...),
	}
}

// stampPrefix precedes the hash in a stamp.
var stampPrefix = fmt.Sprintf("rules %d-", layoutVersion)

// rulesHash changes with the chains, rules and maps that layout returns for a Base
// (TestHashes). It is a constant because the set-up of each pod compares stamps,
// and encoding all rules takes 1100 allocations (0.2 ms on amd64).
const rulesHash = "4bd7e8e85bf15d40"

// stamp identifies the rules of a checked base. It is the comment of one rule, so that
// reading this rule suffices to identify all.
func (b Base) stamp() string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %q %v %v %t", rulesHash, b.Bridge, b.Pods, b.Direct, b.Masquerade)
	return fmt.Sprintf("%s%016x", stampPrefix, h.Sum64())
}

// guard drops packets of others to services that listen on 127.0.0.0/8 only. Without it,
// they reach these services as soon as net.ipv4.conf.BRIDGE.route_localnet is set for
// host ports (CVE-2020-8558). For IPv6 the kernel itself drops such packets.
func guard(stamp string) chain {
	return hooked(chainGuard, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw,
		when(stamp).notIifname("lo").daddr(loopback).drop(),
		when("loopback addresses stay on this machine").notIifname("lo").saddr(loopback).drop())
}

// toHostPorts looks up the destination of packets to this machine in the host ports.
// Packets that this machine sends to ::1 must not get there: they cannot leave it, because
// IPv6 has no route_localnet.
func toHostPorts() *rule { return when("host ports").daddrLocal().jump(chainHostPorts) }

func hostPorts() []*rule {
	rules := make([]*rule, 0, len(portMaps))
	for _, m := range portMaps {
		rules = append(rules, m.rule())
	}
	return rules
}

// postrouting masquerades connections whose replies would otherwise not pass this machine,
// and with Masquerade those of pods to other networks.
func (b Base) postrouting() []*rule {
	var rules []*rule
	for _, p := range b.Pods {
		// Otherwise the reply goes from pod to pod, without the rules of this machine.
		rules = append(rules, when("from pod to pod by a host port").oifname(b.Bridge).saddr(p).ctDNAT().masquerade())
	}
	rules = append(rules, when("from localhost by a host port").oifname(b.Bridge).saddr(loopback).ctDNAT().masquerade())
	if !b.Masquerade {
		return rules
	}
	for _, p := range b.Pods {
		rules = append(rules, when("from pods").saddr(p).jump(chainLeaving))
	}
	return rules
}

// leaving masquerades what pods send, except to networks that have routes to pods and to
// multicast groups.
func (b Base) leaving() []*rule {
	if !b.Masquerade {
		return nil
	}
	var rules []*rule
	for _, p := range b.Pods {
		rules = append(rules, when("pods of this node").daddr(p).returns())
	}
	for _, p := range b.Direct {
		rules = append(rules, when("reached directly").daddr(p).returns())
	}
	return append(rules,
		when("multicast").daddr(multicast4).returns(),
		when("multicast").daddr(multicast6).returns(),
		when("").masquerade())
}
