package nft

import "golang.org/x/sys/unix"

// The chains of all services; each has chains of its own beside.
const (
	chainServices        = "services"
	chainReject          = "service-reject"
	chainServicesPre     = "services-prerouting"
	chainServicesOutput  = "services-output"
	chainServicesPosting = "services-postrouting"
)

// masqueradeMark is the bit of a packet's mark by which connections that others
// have made to this machine's ports are told apart until they leave it: the one
// that Kubernetes' own proxy takes.
const masqueradeMark = 1 << 14

// vipMap leads from a cluster IP and port to what to do, nodePortMap from a port
// of this machine.
func vipMap(f family) set {
	s := nodePortMap(f)
	s.name = "services" + s.name[len(s.name)-1:]
	s.keyType |= f.nftType() << (2 * typeBits)
	s.keyLen += uint32(f.length)
	s.comment = "addresses of services"
	return s
}

func nodePortMap(f family) set {
	return set{
		name:     "service-nodeports" + string('0'+rune(f.version())),
		flags:    setMap,
		keyType:  typeProto<<typeBits | typeService,
		keyLen:   8,
		dataType: unix.NFT_DATA_VERDICT,
		comment:  "services' ports on this machine's addresses",
	}
}

// serviceChains are those that stand before the services' own. They come
// behind the host ports', and before what masquerades pods.
func serviceChains(apart Apart) []chain {
	jump := []*rule{when("").jump(chainServices)}
	return []chain{
		{name: chainReject, rules: rejecting()},
		{name: chainServices, rules: append(apart.rules(), choosing()...)},
		{name: chainServicesPre, kind: "nat", hook: unix.NF_INET_PRE_ROUTING, priority: -99, rules: jump},
		{name: chainServicesOutput, kind: "nat", hook: unix.NF_INET_LOCAL_OUT, priority: -99, rules: jump},
		{name: chainServicesPosting, kind: "nat", hook: unix.NF_INET_POST_ROUTING, priority: 99, rules: []*rule{
			when("from others by a port of this machine").marked().masquerade(),
		}},
	}
}

func choosing() []*rule {
	var rules []*rule
	for _, f := range []family{ipv4, ipv6} {
		vip := when("").ip(f).payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.dst, f.length, 0)
		rules = append(rules, vip.portKey(f.words()).choose(vipMap(f).name))
	}
	for _, f := range []family{ipv4, ipv6} {
		own := loopback
		if f == ipv6 {
			own = loopback6
		}
		rules = append(rules, when("").ip(f).notTo(own).local().portKey(0).choose(nodePortMap(f).name))
	}
	return rules
}

// rejecting refuses what nobody answers, before it is routed (Linux 5.9).
func rejecting() []*rule {
	return []*rule{
		when("no endpoints").meta(unix.NFT_META_L4PROTO, 0).equal([]byte{unix.IPPROTO_TCP}).reject(unix.NFT_REJECT_TCP_RST),
		when("no endpoints").reject(unix.NFT_REJECT_ICMPX_UNREACH),
	}
}

// mark marks the packet for marked.
func (r *rule) mark() *rule {
	return r.meta(unix.NFT_META_MARK, 0).bits(native(^uint32(masqueradeMark)), native(masqueradeMark)).setMark()
}

// marked matches what is marked, and takes the mark away: it would go on with
// the packet into a tunnel.
func (r *rule) marked() *rule {
	r.meta(unix.NFT_META_MARK, 0).mask(native(masqueradeMark)).compare(unix.NFT_CMP_NEQ, native(0))
	return r.meta(unix.NFT_META_MARK, 0).mask(native(^uint32(masqueradeMark))).setMark()
}

func (r *rule) setMark() *rule {
	r.begin("meta")
	r.number(unix.NFTA_META_KEY, unix.NFT_META_MARK)
	r.number(unix.NFTA_META_SREG, register(0))
	return r.end()
}
