package nft

import (
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// rule is one rule, with its expressions as they are sent (NFTA_LIST_ELEM). Values that
// are compared with a register are in the byte order of the register's content.
type rule struct {
	comment     string
	expressions []netlink.Attribute
}

// when starts a rule with a comment.
func when(comment string) *rule { return &rule{comment: comment} }

func (r *rule) add(e expr.Any) *rule { return r.encoded(marshal(e)) }

func (r *rule) encoded(expression []byte) *rule {
	r.expressions = append(r.expressions, bytesOf(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, expression))
	return r
}

// marshal encodes an expression. The family does not matter: only expressions of
// iptables depend on it.
func marshal(e expr.Any) []byte {
	data, err := expr.Marshal(unix.NFPROTO_UNSPEC, e)
	if err != nil {
		panic("nft: an expression of this package: " + err.Error())
	}
	return data
}

// newRule appends a rule to a chain.
func (b *batch) newRule(chain string, r *rule) {
	all := []netlink.Attribute{
		text(unix.NFTA_RULE_TABLE, tableName),
		text(unix.NFTA_RULE_CHAIN, chain),
		nested(unix.NFTA_RULE_EXPRESSIONS, r.expressions...),
	}
	if r.comment != "" {
		all = append(all, bytesOf(unix.NFTA_RULE_USERDATA, commentData(commentOfRule, r.comment)))
	}
	b.add(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, all...)
}

// rules lists the rules of a chain, or of all chains for "", in their order. A
// table that does not exist has none.
func (t *Table) rules(chain string) (all []attributes, err error) {
	from := []netlink.Attribute{text(unix.NFTA_RULE_TABLE, tableName)}
	if chain != "" {
		from = append(from, text(unix.NFTA_RULE_CHAIN, chain))
	}
	listed, err := t.list(unix.NFT_MSG_GETRULE, netlink.Dump, from...)
	for _, a := range listed {
		// Some kernels list more than what is requested.
		if chain == "" || a.text(unix.NFTA_RULE_CHAIN) == chain {
			all = append(all, a)
		}
	}
	return all, ignoreAbsent(err)
}

// ruleComment returns the comment of a listed rule.
func ruleComment(listed attributes) string { return commentOf(listed.value(unix.NFTA_RULE_USERDATA)) }

// is reports whether a listed rule is this one.
func (r *rule) is(listed attributes) bool {
	rest := r.expressions
	for _, e := range listed.value(unix.NFTA_RULE_EXPRESSIONS).each() {
		if len(rest) == 0 || !attributes(rest[0].Data).same(e) {
			return false
		}
		rest = rest[1:]
	}
	return len(rest) == 0 && ruleComment(listed) == r.comment
}

// register returns the number of a register of 4 bytes. The kernel lists those at
// multiples of 16 bytes by the number of the register of 16 bytes.
func register(word int) uint32 {
	if word%4 == 0 {
		return uint32(unix.NFT_REG_1 + word/4)
	}
	return uint32(unix.NFT_REG32_00 + word)
}

// hostOrder returns a number in the byte order of values that the kernel computes.
func hostOrder(value uint32) []byte { return native.AppendUint32(nil, value) }

// compare continues with the rule only if the first register and the value have the
// relation op.
func (r *rule) compare(op expr.CmpOp, value []byte) *rule {
	return r.add(&expr.Cmp{Op: op, Register: register(0), Data: value})
}

func (r *rule) equal(value []byte) *rule { return r.compare(expr.CmpOpEq, value) }

func (r *rule) notEqual(value []byte) *rule { return r.compare(expr.CmpOpNeq, value) }

// mask keeps these bits of the first register.
func (r *rule) mask(bits []byte) *rule { return r.bitwise(bits, make([]byte, len(bits))) }

// bitwise keeps bits of the first register, and inverts others.
func (r *rule) bitwise(mask, xor []byte) *rule {
	return r.add(&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: uint32(len(mask)), Mask: mask, Xor: xor})
}

// meta loads metadata of the packet.
func (r *rule) meta(key expr.MetaKey, word int) *rule {
	return r.add(&expr.Meta{Key: key, Register: register(word)})
}

// payload loads bytes of a header.
func (r *rule) payload(base expr.PayloadBase, offset, length, word int) *rule {
	return r.add(&expr.Payload{DestRegister: register(word), Base: base, Offset: uint32(offset), Len: uint32(length)})
}

// network loads bytes of the header of IP or ARP.
func (r *rule) network(offset, length, word int) *rule {
	return r.payload(expr.PayloadBaseNetworkHeader, offset, length, word)
}

// transport loads bytes of what follows the IP header.
func (r *rule) transport(offset, length, word int) *rule {
	return r.payload(expr.PayloadBaseTransportHeader, offset, length, word)
}

// immediate loads a value.
func (r *rule) immediate(word int, value []byte) *rule {
	return r.add(&expr.Immediate{Register: register(word), Data: value})
}

// family is an IP version, with the offsets of its header.
type family struct {
	version     int
	nfproto     nftables.TableFamily
	source, dst int // of the addresses
	length      int // of an address
	words       int // the registers of 4 bytes that an address takes
}

var (
	ipv4 = family{version: 4, nfproto: nftables.TableFamilyIPv4, source: 12, dst: 16, length: 4, words: 1}
	ipv6 = family{version: 6, nfproto: nftables.TableFamilyIPv6, source: 8, dst: 24, length: 16, words: 4}
)

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

// addressType is the type of an address in keys and values of sets.
func (f family) addressType() nftables.SetDatatype {
	if f == ipv4 {
		return nftables.TypeIPAddr
	}
	return nftables.TypeIP6Addr
}

// nfproto matches packets of an IP version.
func (r *rule) nfproto(f family) *rule {
	return r.meta(expr.MetaKeyNFPROTO, 0).equal([]byte{byte(f.nfproto)})
}

// l4proto matches packets of a protocol above IP.
func (r *rule) l4proto(protocol byte) *rule {
	return r.meta(expr.MetaKeyL4PROTO, 0).equal([]byte{protocol})
}

// saddr matches packets from a network.
func (r *rule) saddr(p netip.Prefix) *rule {
	f := familyOf(p.Addr())
	return r.nfproto(f).within(f.source, f.length, p)
}

// daddr matches packets to a network.
func (r *rule) daddr(p netip.Prefix) *rule {
	f := familyOf(p.Addr())
	return r.nfproto(f).within(f.dst, f.length, p)
}

// notDaddr matches packets to addresses outside a network whose prefix length is a
// multiple of 8. The rule must match the family before.
func (r *rule) notDaddr(p netip.Prefix) *rule {
	f, bytes := familyOf(p.Addr()), p.Bits()/8
	return r.network(f.dst, bytes, 0).notEqual(p.Addr().AsSlice()[:bytes])
}

// within matches an address of a header. If the prefix length is a multiple of 8, it
// loads and compares the bytes of the prefix only.
func (r *rule) within(offset, length int, p netip.Prefix) *rule {
	bits := p.Bits()
	addr := p.Masked().Addr().AsSlice()
	switch {
	case bits == 0:
		return r
	case bits%8 == 0:
		return r.network(offset, bits/8, 0).equal(addr[:bits/8])
	}
	return r.network(offset, length, 0).mask(net.CIDRMask(bits, 8*length)).equal(addr)
}

// protoPort loads the protocol and the destination port, as keys of maps have
// them.
func (r *rule) protoPort(word int) *rule {
	return r.meta(expr.MetaKeyL4PROTO, word).transport(2, 2, word+1)
}

// interfaceName returns a name as registers have it.
func interfaceName(name string) []byte {
	value := make([]byte, unix.IFNAMSIZ)
	copy(value, name)
	return value
}

// iifname matches packets that were received by an interface.
func (r *rule) iifname(name string) *rule {
	return r.meta(expr.MetaKeyIIFNAME, 0).equal(interfaceName(name))
}

// notIifname matches packets that were received by another interface.
func (r *rule) notIifname(name string) *rule {
	return r.meta(expr.MetaKeyIIFNAME, 0).notEqual(interfaceName(name))
}

// oifname matches packets that are sent by an interface.
func (r *rule) oifname(name string) *rule {
	return r.meta(expr.MetaKeyOIFNAME, 0).equal(interfaceName(name))
}

// daddrLocal matches packets to an address of this machine.
func (r *rule) daddrLocal() *rule {
	return r.addrtypeLocal(expr.Fib{FlagDADDR: true})
}

// saddrLocal matches packets from an address of this machine.
func (r *rule) saddrLocal() *rule {
	return r.addrtypeLocal(expr.Fib{FlagSADDR: true})
}

func (r *rule) addrtypeLocal(fib expr.Fib) *rule {
	fib.Register, fib.ResultADDRTYPE = register(0), true
	return r.add(&fib).equal(hostOrder(unix.RTN_LOCAL))
}

// The bits of a connection's status in
// include/uapi/linux/netfilter/nf_conntrack_common.h.
const (
	ipsSrcNAT = 1 << 4
	ipsDstNAT = 1 << 5
)

// ctDNAT matches connections whose destination was translated.
func (r *rule) ctDNAT() *rule {
	return r.add(&expr.Ct{Key: expr.CtKeySTATUS, Register: register(0)}).mask(hostOrder(ipsDstNAT)).notEqual(hostOrder(0))
}

// in continues with the rule only if a set has the key that begins at the first
// register.
func (r *rule) in(set string) *rule {
	return r.add(&expr.Lookup{SetName: set, SourceRegister: register(0)})
}

// notIn continues with the rule only if a set does not have the key.
func (r *rule) notIn(set string) *rule {
	return r.add(&expr.Lookup{SetName: set, SourceRegister: register(0), Invert: true})
}

// mapped replaces the key that begins at the first register by its value in a map.
// The rule ends where the map does not have the key.
func (r *rule) mapped(name string) *rule { return r.lookup(name, 0, register(0)) }

// vmap ends with the verdict that a verdict map has for the key that begins at the
// first register.
func (r *rule) vmap(name string) *rule { return r.lookup(name, 0, unix.NFT_REG_VERDICT) }

// lookup loads the value in a map. Sets of the same transaction may have an ID.
func (r *rule) lookup(name string, id, dest uint32) *rule {
	return r.add(&expr.Lookup{SetName: name, SetID: id, SourceRegister: register(0), DestRegister: dest, IsDestRegSet: true})
}

// verdict ends the rule.
func (r *rule) verdict(v expr.Verdict) *rule { return r.add(&v) }

func (r *rule) accept() *rule { return r.verdict(expr.Verdict{Kind: expr.VerdictAccept}) }

func (r *rule) drop() *rule { return r.verdict(expr.Verdict{Kind: expr.VerdictDrop}) }

// returns continues after the jump to the chain.
func (r *rule) returns() *rule { return r.verdict(expr.Verdict{Kind: expr.VerdictReturn}) }

// jump continues in a chain, and after it with the next rule.
func (r *rule) jump(chain string) *rule {
	return r.verdict(expr.Verdict{Kind: expr.VerdictJump, Chain: chain})
}

// goTo continues in a chain, and does not return to this one.
func (r *rule) goTo(chain string) *rule { return r.verdict(goTo(chain)) }

func goTo(chain string) expr.Verdict { return expr.Verdict{Kind: expr.VerdictGoto, Chain: chain} }

// rejectTCP answers with a reset.
func (r *rule) rejectTCP() *rule { return r.add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}) }

// reject answers that the port is unreachable.
func (r *rule) reject() *rule {
	return r.add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})
}

// masquerade replaces the connection's source address by that of the outgoing interface.
// Ports are random: if the next free port were used, two connections that begin at the
// same moment could get the same one, and the packet of one would be dropped.
func (r *rule) masquerade() *rule { return r.add(&expr.Masq{FullyRandom: true}) }

// dnat changes the connection's destination to the address and port that begin at
// the first register.
func (r *rule) dnat(f family) *rule {
	nat := marshal(&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(f.nfproto),
		RegAddrMin: register(0), RegAddrMax: register(0),
		RegProtoMin: register(f.words), RegProtoMax: register(f.words),
		Specified: true,
	})
	// expr.NAT cannot set the flag that there is an address, which the nft program
	// sends and current kernels set and list themselves. The flags are the last
	// number, in network byte order.
	nat[len(nat)-1] |= unix.NF_NAT_RANGE_MAP_IPS
	return r.encoded(nat)
}

// setMark sets the packet's mark to the first register.
func (r *rule) setMark() *rule {
	return r.add(&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register(0)})
}
