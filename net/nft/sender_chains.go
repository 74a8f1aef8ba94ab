package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The chains of the table bridge tinylet.
const (
	chainFromPods  = "from-pods"
	chainARP       = "arp"
	chainFromIPv4  = "ipv4"
	chainFromIPv6  = "ipv6"
	chainDiscovery = "discovery"
)

// The sets of the table bridge tinylet. Each element belongs to one pod.
const (
	setPorts   = "ports"
	setMACs    = "macs"
	setSender4 = "addresses4"
	setSender6 = "addresses6"
)

var senderSetNames = [...]string{setPorts, setMACs, setSender4, setSender6}

// The registers of 4 bytes at which parts of a key begin: the interface's name
// fills four, the MAC address two.
const (
	wordMAC     = 4
	wordAddress = 6
)

// macLen is the length of a MAC address, and macSpace its space in a key.
const (
	macLen   = 6
	macSpace = 8
)

// senderSets returns the sets of the table. They have no size: a hash table of a
// fixed size would take memory for pods that do not exist.
func senderSets() []nftables.Set {
	set := func(name, comment string, address ...nftables.SetDatatype) nftables.Set {
		types := append([]nftables.SetDatatype{nftables.TypeIFName}, address...)
		return nftables.Set{Name: name, Comment: comment, KeyType: nftables.MustConcatSetType(types...)}
	}
	ports := set(setPorts, "interfaces of pods")
	ports.KeyByteOrder = binaryutil.NativeEndian
	return []nftables.Set{
		ports,
		set(setMACs, "pods' MAC addresses", nftables.TypeEtherAddr),
		set(setSender4, "pods' IPv4 addresses", nftables.TypeEtherAddr, nftables.TypeIPAddr),
		set(setSender6, "pods' IPv6 addresses", nftables.TypeEtherAddr, nftables.TypeIP6Addr),
	}
}

// The ICMPv6 messages that the rules distinguish (RFC 4861, RFC 3810).
const (
	routerAdvertisement   = 134
	neighborSolicitation  = 135
	neighborAdvertisement = 136
	redirectMessage       = 137
	listenerReport        = 143
)

// The options of neighbor discovery that carry a MAC address, by the message (RFC
// 4861, section 4.6.1).
const (
	sourceLinkAddress = 1
	targetLinkAddress = 2
)

// senderChains returns the chains of the table. A packet is looked up in each set
// once at most, whatever the number of pods. The comment of the first rule of the
// chain from-pods identifies the rules.
func senderChains() []chain {
	return []chain{
		jumped(chainARP, senderARP()...),
		jumped(chainFromIPv4, senderIPv4()...),
		jumped(chainDiscovery, senderDiscovery()...),
		jumped(chainFromIPv6, senderIPv6()...),
		hooked(chainFromPods, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRef(-200),
			when(senderStamp).fromPort().notIn(setPorts).accept(),
			when("the MAC address of another").fromPort().senderMAC().notIn(setMACs).drop(),
			when("").etherType(unix.ETH_P_IP).goTo(chainFromIPv4),
			when("").etherType(unix.ETH_P_IPV6).goTo(chainFromIPv6),
			when("").etherType(unix.ETH_P_ARP).goTo(chainARP),
			when("neither IP nor ARP").drop()),
	}
}

// senderStamp identifies the rules. It changes with them (TestHashes), and is a
// constant because the set-up of each pod compares it, and encoding all rules takes
// 950 allocations (0.2 ms on amd64).
const senderStamp = "rules 1-57f5d6b988f95a0a"

// senderARP accepts packets whose sender is the pod. A probe for the pod's own
// address has no sender address (RFC 5227).
func senderARP() []*rule {
	const senderHardware, senderProtocol, targetProtocol = 8, 14, 24
	own := func(r *rule, address int) *rule {
		return r.fromPort().network(senderHardware, macLen, wordMAC).network(address, 4, wordAddress).in(setSender4).accept()
	}
	none := make([]byte, 4)
	return []*rule{
		own(when("").network(senderProtocol, 4, 0).notEqual(none), senderProtocol),
		own(when("is its own address free").network(senderProtocol, 4, 0).equal(none), targetProtocol),
		when("the address of another").drop(),
	}
}

// senderIPv4 drops packets from addresses of others, and answers of a DHCP server.
func senderIPv4() []*rule {
	return []*rule{
		when("the address of another").fromPort().senderMAC().network(ipv4.source, ipv4.length, wordAddress).notIn(setSender4).drop(),
		when("a DHCP server's answer").l4proto(unix.IPPROTO_UDP).transport(0, 4, 0).equal([]byte{0, 67, 0, 68}).drop(),
	}
}

// senderIPv6 does the same for IPv6. Before a pod has an address, it probes whether
// the address is free, and reports its multicast groups, from the address ::.
func senderIPv6() []*rule {
	unspecified := func(comment string) *rule {
		return when(comment).network(ipv6.source, ipv6.length, 0).equal(make([]byte, ipv6.length)).l4proto(unix.IPPROTO_ICMPV6)
	}
	return []*rule{
		unspecified("is its own address free").icmp(neighborSolicitation).ownTarget().in(setSender6).accept(),
		unspecified("which groups it listens to").icmp(listenerReport).accept(),
		when("the address of another").fromPort().senderMAC().network(ipv6.source, ipv6.length, wordAddress).notIn(setSender6).drop(),
		when("a DHCP server's answer").l4proto(unix.IPPROTO_UDP).transport(0, 4, 0).equal([]byte{547 >> 8, 547 & 0xff, 546 >> 8, 546 & 0xff}).drop(),
		when("").l4proto(unix.IPPROTO_ICMPV6).goTo(chainDiscovery),
	}
}

// senderDiscovery drops messages that only routers may send, and those with addresses of
// others. The MAC address of a message must be in its first option, as Linux sends it:
// the rules drop a message with another first option. A message without options has no
// MAC address and is accepted.
func senderDiscovery() []*rule {
	const option, optionMAC = 24, 26
	linkAddress := func(message, kind byte) *rule {
		return when("its own MAC address").icmp(message).transport(option, 1, 0).equal([]byte{kind}).
			fromPort().transport(optionMAC, macLen, wordMAC).in(setMACs).accept()
	}
	other := func(message byte) *rule {
		return when("the MAC address of another").icmp(message).transport(option, 1, 0).compare(expr.CmpOpGte, []byte{0}).drop()
	}
	return []*rule{
		when("pods are no routers").icmp(routerAdvertisement).drop(),
		when("pods are no routers").icmp(redirectMessage).drop(),
		when("the address of another").icmp(neighborAdvertisement).ownTarget().notIn(setSender6).drop(),
		linkAddress(neighborSolicitation, sourceLinkAddress),
		linkAddress(neighborAdvertisement, targetLinkAddress),
		other(neighborSolicitation),
		other(neighborAdvertisement),
	}
}

// fromPort loads the name of the interface that received the packet, the first part of
// each key.
func (r *rule) fromPort() *rule { return r.meta(expr.MetaKeyIIFNAME, 0) }

// senderMAC loads the source MAC address of the packet as the second part of a
// key.
func (r *rule) senderMAC() *rule {
	return r.payload(expr.PayloadBaseLLHeader, macLen, macLen, wordMAC)
}

// ownTarget loads the key of the target address of neighbor discovery.
func (r *rule) ownTarget() *rule {
	return r.fromPort().senderMAC().transport(8, ipv6.length, wordAddress)
}

// etherType matches packets of a protocol above Ethernet.
func (r *rule) etherType(protocol uint16) *rule {
	return r.meta(expr.MetaKeyPROTOCOL, 0).equal([]byte{byte(protocol >> 8), byte(protocol)})
}

// icmp matches messages of a type.
func (r *rule) icmp(kind byte) *rule { return r.transport(0, 1, 0).equal([]byte{kind}) }
