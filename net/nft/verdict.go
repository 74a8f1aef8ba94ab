package nft

import "golang.org/x/sys/unix"

// The kernel's verdicts on a packet, of nf_tables.h and netfilter.h.
const (
	verdictDrop   = 0
	verdictAccept = 1
	verdictJump   = -3
	verdictGoto   = -4
	verdictReturn = -5
)

// verdict ends the rule; chain is where it goes on, or empty.
func (r *rule) verdict(code int32, chain string) *rule {
	r.begin("immediate")
	r.number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	at := r.open(unix.NFTA_IMMEDIATE_DATA)
	r.verdictData(code, chain)
	r.close(at)
	return r.end()
}

func (e *encoded) verdictData(code int32, chain string) {
	at := e.open(unix.NFTA_DATA_VERDICT)
	e.number(unix.NFTA_VERDICT_CODE, uint32(code))
	if chain != "" {
		e.text(unix.NFTA_VERDICT_CHAIN, chain)
	}
	e.close(at)
}

// drop takes the packet away without a word.
func (r *rule) drop() *rule { return r.verdict(verdictDrop, "") }

// back goes on behind the jump that has led here.
func (r *rule) back() *rule { return r.verdict(verdictReturn, "") }

// jump goes on in a chain, and comes back.
func (r *rule) jump(chain string) *rule { return r.verdict(verdictJump, chain) }

// on goes on in a chain, and does not come back.
func (r *rule) on(chain string) *rule { return r.verdict(verdictGoto, chain) }

// reject refuses the packet with an answer: a reset, or that nobody is at the
// port.
func (r *rule) reject(kind uint32) *rule {
	r.begin("reject")
	r.number(unix.NFTA_REJECT_TYPE, kind)
	if kind == unix.NFT_REJECT_ICMPX_UNREACH {
		r.attribute(unix.NFTA_REJECT_ICMP_CODE, []byte{unix.NFT_REJECT_ICMPX_PORT_UNREACH})
	}
	return r.end()
}

// The bits of include/uapi/linux/netfilter/nf_nat.h.
const (
	natAddresses   = 1 << 0 // NF_NAT_RANGE_MAP_IPS
	natPorts       = 1 << 1 // NF_NAT_RANGE_PROTO_SPECIFIED
	natFullyRandom = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
)

// masquerade gives the connection the address of the interface it leaves by.
// Ports are taken at random: with the next free one, two connections that begin
// at the same moment may get the same, and one loses its packet.
func (r *rule) masquerade() *rule {
	r.begin("masq")
	r.number(unix.NFTA_MASQ_FLAGS, natFullyRandom)
	return r.end()
}

// redirect changes the connection's destination to the address and port that
// begin at the first register.
func (r *rule) redirect(f family) *rule {
	r.begin("nat")
	r.number(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
	r.number(unix.NFTA_NAT_FAMILY, uint32(f.nfproto))
	r.number(unix.NFTA_NAT_REG_ADDR_MIN, register(0))
	r.number(unix.NFTA_NAT_REG_ADDR_MAX, register(0))
	r.number(unix.NFTA_NAT_REG_PROTO_MIN, register(f.words()))
	r.number(unix.NFTA_NAT_REG_PROTO_MAX, register(f.words()))
	r.number(unix.NFTA_NAT_FLAGS, natAddresses|natPorts)
	return r.end()
}
