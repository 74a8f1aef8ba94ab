package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// rule is one rule: its expressions as attributes behind attributes. Numbers in
// attributes are in the network's order; what is compared with a register is in
// the order that the register has it.
type rule struct {
	comment string
	encoded

	element, data int // the expression that is being written
}

// when starts a rule with a comment for people.
func when(comment string) *rule {
	return &rule{comment: comment, encoded: encoded{make([]byte, 0, ruleLen)}}
}

// ruleLen is the length that most rules do not outgrow.
const ruleLen = 384

// begin starts an expression, end ends it.
func (r *rule) begin(name string) {
	r.element = r.open(unix.NFTA_LIST_ELEM)
	r.text(unix.NFTA_EXPR_NAME, name)
	r.data = r.open(unix.NFTA_EXPR_DATA)
}

func (r *rule) end() *rule {
	r.close(r.data)
	r.close(r.element)
	return r
}

// register is the number of a register of 4 bytes. The kernel calls those at
// multiples of 16 bytes by the number of the register of 16 bytes, and lists
// them so.
func register(word int) uint32 {
	if word%4 == 0 {
		return uint32(unix.NFT_REG_1 + word/4)
	}
	return uint32(unix.NFT_REG32_00 + word)
}

// native is a number as registers have what the kernel itself computes.
func native(value uint32) []byte { return binary.NativeEndian.AppendUint32(nil, value) }

// compare goes on with the rule only if the first register is, or is not, the
// value.
func (r *rule) compare(op uint32, value []byte) *rule {
	r.begin("cmp")
	r.number(unix.NFTA_CMP_SREG, register(0))
	r.number(unix.NFTA_CMP_OP, op)
	r.value(unix.NFTA_CMP_DATA, value)
	return r.end()
}

func (r *rule) equal(value []byte) *rule { return r.compare(unix.NFT_CMP_EQ, value) }

// mask keeps these bits of the first register.
func (r *rule) mask(bits []byte) *rule { return r.bits(bits, make([]byte, len(bits))) }

// bits keeps bits of the first register, and turns others over.
func (r *rule) bits(keep, turn []byte) *rule {
	r.begin("bitwise")
	r.number(unix.NFTA_BITWISE_SREG, register(0))
	r.number(unix.NFTA_BITWISE_DREG, register(0))
	r.number(unix.NFTA_BITWISE_LEN, uint32(len(keep)))
	r.value(unix.NFTA_BITWISE_MASK, keep)
	r.value(unix.NFTA_BITWISE_XOR, turn)
	return r.end()
}

// meta loads what the kernel knows of the packet.
func (r *rule) meta(key uint32, word int) *rule {
	r.begin("meta")
	r.number(unix.NFTA_META_KEY, key)
	r.number(unix.NFTA_META_DREG, register(word))
	return r.end()
}

// payload loads bytes of a header.
func (r *rule) payload(base uint32, offset, length, word int) *rule {
	r.begin("payload")
	r.number(unix.NFTA_PAYLOAD_DREG, register(word))
	r.number(unix.NFTA_PAYLOAD_BASE, base)
	r.number(unix.NFTA_PAYLOAD_OFFSET, uint32(offset))
	r.number(unix.NFTA_PAYLOAD_LEN, uint32(length))
	return r.end()
}

// lookup takes the key that begins at the first register to what the map has
// for it, which is put there too. The rule ends where the map has nothing.
func (r *rule) lookup(name string) *rule { return r.lookupInto(name, register(0)) }

// choose goes on where the verdict map says for the key that begins at the first
// register.
func (r *rule) choose(name string) *rule { return r.lookupInto(name, unix.NFT_REG_VERDICT) }

func (r *rule) lookupInto(name string, into uint32) *rule {
	r.begin("lookup")
	r.text(unix.NFTA_LOOKUP_SET, name)
	r.number(unix.NFTA_LOOKUP_SREG, register(0))
	r.number(unix.NFTA_LOOKUP_DREG, into)
	return r.end()
}
