package nft

import (
	"fmt"
	"hash/fnv"

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

// The sets of the table bridge tinylet. Each element of one is of one pod.
const (
	setPorts   = "ports"
	setMACs    = "macs"
	setSender4 = "addresses4"
	setSender6 = "addresses6"
)

// More types of keys as the nft program counts them.
const (
	typeEther = 9
	typeName  = 41
)

// The words in which a key has its parts: the interface's name fills four, the
// MAC address two.
const (
	wordMAC     = 4
	wordAddress = 6
)

// macLen is the length of a MAC address, and macSpace what it fills in a key.
const (
	macLen   = 6
	macSpace = 8
)

// senderSets are the sets of the table. They have no bound: a hash table of a
// fixed size would take memory for pods that there are not.
func senderSets() []set {
	mac := uint32(typeName<<typeBits | typeEther)
	return []set{
		{name: setPorts, keyType: typeName, keyLen: unix.IFNAMSIZ, comment: "interfaces of pods"},
		{name: setMACs, keyType: mac, keyLen: unix.IFNAMSIZ + macSpace, comment: "pods' MAC addresses"},
		{name: setSender4, keyType: mac<<typeBits | typeIPv4, keyLen: unix.IFNAMSIZ + macSpace + 4, comment: "pods' IPv4 addresses"},
		{name: setSender6, keyType: mac<<typeBits | typeIPv6, keyLen: unix.IFNAMSIZ + macSpace + 16, comment: "pods' IPv6 addresses"},
	}
}

// The message types of ICMPv6 that are told apart (RFC 4861, RFC 3810).
const (
	routerAdvertisement   = 134
	neighborSolicitation  = 135
	neighborAdvertisement = 136
	redirectMessage       = 137
	listenerReport        = 143
)

// The options of neighbor discovery that carry a MAC address, by the message
// (RFC 4861, section 4.6.1).
const (
	sourceLinkAddress = 1
	targetLinkAddress = 2
)

// senderChains are the chains of the table. A packet meets each set once at
// most, whatever the number of pods. The comment of the first rule of the chain
// from-pods tells what the rules were made of.
func senderChains() []chain {
	all := []chain{
		{name: chainARP, rules: senderARP()},
		{name: chainFromIPv4, rules: senderIPv4()},
		{name: chainDiscovery, rules: senderDiscovery()},
		{name: chainFromIPv6, rules: senderIPv6()},
		{name: chainFromPods, kind: "filter", hook: unix.NF_INET_PRE_ROUTING, priority: -200, rules: []*rule{
			when("").fromPort().notIn(setPorts).verdict(verdictAccept, ""),
			when("the MAC address of another").fromPort().senderMAC().notIn(setMACs).drop(),
			when("").etherType(unix.ETH_P_IP).on(chainFromIPv4),
			when("").etherType(unix.ETH_P_IPV6).on(chainFromIPv6),
			when("").etherType(unix.ETH_P_ARP).on(chainARP),
			when("neither IP nor ARP").drop(),
		}},
	}
	all[4].rules[0].comment = senderStamp(all)
	return all
}

// senderStamp is what the rules are known by, without reading them all.
func senderStamp(all []chain) string {
	h := fnv.New64a()
	for _, c := range all {
		fmt.Fprintf(h, "%s %s %d %d\n", c.name, c.kind, c.hook, c.priority)
		for _, r := range c.rules {
			h.Write(r.code)
		}
	}
	fmt.Fprintf(h, "%v\n", senderSets())
	return fmt.Sprintf("%s%016x", stampPrefix, h.Sum64())
}

// senderARP passes packets whose sender is the pod. One that asks whether its own
// address is free names no sender (RFC 5227).
func senderARP() []*rule {
	const senderHardware, senderProtocol, targetProtocol = 8, 14, 24
	named := func(comment string, address int) *rule {
		r := when(comment).header(senderProtocol, 4, 0)
		return r.equalZero(address == targetProtocol).fromPort().header(senderHardware, macLen, wordMAC).header(address, 4, wordAddress)
	}
	return []*rule{
		named("", senderProtocol).in(setSender4).verdict(verdictAccept, ""),
		named("is its own address free", targetProtocol).in(setSender4).verdict(verdictAccept, ""),
		when("the address of another").drop(),
	}
}

// senderIPv4 drops packets from addresses of others, and answers of a DHCP
// server.
func senderIPv4() []*rule {
	return []*rule{
		when("the address of another").fromPort().senderMAC().header(ipv4.source, ipv4.length, wordAddress).notIn(setSender4).drop(),
		when("a DHCP server's answer").l4(unix.IPPROTO_UDP).transport(0, 4, 0).equal([]byte{0, 67, 0, 68}).drop(),
	}
}

// senderIPv6 does the same for IPv6. Before it has an address, a pod asks whether
// it is free, and names the groups that it listens to, from the address ::.
func senderIPv6() []*rule {
	unspecified := func(comment string) *rule {
		return when(comment).header(ipv6.source, ipv6.length, 0).equal(make([]byte, ipv6.length)).l4(unix.IPPROTO_ICMPV6)
	}
	return []*rule{
		unspecified("is its own address free").icmp(neighborSolicitation).ownTarget().in(setSender6).verdict(verdictAccept, ""),
		unspecified("which groups it listens to").icmp(listenerReport).verdict(verdictAccept, ""),
		when("the address of another").fromPort().senderMAC().header(ipv6.source, ipv6.length, wordAddress).notIn(setSender6).drop(),
		when("a DHCP server's answer").l4(unix.IPPROTO_UDP).transport(0, 4, 0).equal([]byte{547 >> 8, 547 & 0xff, 546 >> 8, 546 & 0xff}).drop(),
		when("").l4(unix.IPPROTO_ICMPV6).on(chainDiscovery),
	}
}

// senderDiscovery drops what routers alone may say, and what names addresses of
// others. The MAC address of a message is in its first option, as Linux sends
// it: with another option there, a second one would have to be looked for.
func senderDiscovery() []*rule {
	const option, optionMAC = 24, 26
	linkAddress := func(message, kind byte) *rule {
		return when("its own MAC address").icmp(message).transport(option, 1, 0).equal([]byte{kind}).
			fromPort().transport(optionMAC, macLen, wordMAC).in(setMACs).verdict(verdictAccept, "")
	}
	other := func(message byte) *rule {
		return when("the MAC address of another").icmp(message).transport(option, 1, 0).compare(unix.NFT_CMP_GTE, []byte{0}).drop()
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

// fromPort loads the name of the interface that a packet has come in by, which
// is the first part of each key.
func (r *rule) fromPort() *rule { return r.meta(unix.NFT_META_IIFNAME, 0) }

// senderMAC loads the packet's source MAC address as the second part of a key.
func (r *rule) senderMAC() *rule {
	return r.payload(unix.NFT_PAYLOAD_LL_HEADER, macLen, macLen, wordMAC)
}

// header loads bytes of the header of IP or ARP.
func (r *rule) header(offset, length, word int) *rule {
	return r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, length, word)
}

// transport loads bytes behind the header of IP.
func (r *rule) transport(offset, length, word int) *rule {
	return r.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, offset, length, word)
}

// ownTarget loads the key of the address that neighbor discovery is about.
func (r *rule) ownTarget() *rule {
	return r.fromPort().senderMAC().transport(8, ipv6.length, wordAddress)
}

// equalZero matches an IPv4 address in the first register that is 0.0.0.0, or
// that is not.
func (r *rule) equalZero(is bool) *rule {
	op := uint32(unix.NFT_CMP_NEQ)
	if is {
		op = unix.NFT_CMP_EQ
	}
	return r.compare(op, make([]byte, 4))
}

// etherType matches packets of a protocol above Ethernet.
func (r *rule) etherType(protocol uint16) *rule {
	return r.meta(unix.NFT_META_PROTOCOL, 0).equal([]byte{byte(protocol >> 8), byte(protocol)})
}

// l4 matches packets of a protocol above IP.
func (r *rule) l4(protocol byte) *rule {
	return r.meta(unix.NFT_META_L4PROTO, 0).equal([]byte{protocol})
}

// icmp matches messages of a type.
func (r *rule) icmp(kind byte) *rule { return r.transport(0, 1, 0).equal([]byte{kind}) }

// notIn goes on with the rule only if a set does not have the key that begins at
// the first register.
func (r *rule) notIn(name string) *rule {
	r.begin("lookup")
	r.text(unix.NFTA_LOOKUP_SET, name)
	r.number(unix.NFTA_LOOKUP_SREG, register(0))
	r.number(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
	return r.end()
}
