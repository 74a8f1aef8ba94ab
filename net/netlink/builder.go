package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// order is the machine's: netlink's headers and most attributes have it.
var order = binary.NativeEndian

// headerLen is the length of struct nlmsghdr, attrLen that of struct nlattr.
const (
	headerLen = unix.NLMSG_HDRLEN
	attrLen   = unix.SizeofNlAttr
)

// nested marks an attribute that holds others (NLA_F_NESTED).
const nested = unix.NLA_F_NESTED

// Builder puts messages one behind the other, to be sent together. The zero
// value is ready; Reset keeps its memory. It is for one goroutine.
type Builder struct {
	buf   []byte
	count int
	begin int // of the message that is being built
}

// Reset forgets all messages.
func (b *Builder) Reset() { b.buf, b.count = b.buf[:0], 0 }

// Len is the number of messages.
func (b *Builder) Len() int { return b.count }

// Size is the number of bytes of all messages.
func (b *Builder) Size() int { return len(b.buf) }

// Begin starts a message of a kind (RTM_NEWLINK, say) with NLM_F_REQUEST and
// these flags; what follows is put into it until the next Begin. The numbers
// by which answers are told apart are given when it is sent.
func (b *Builder) Begin(kind, flags uint16) {
	b.begin = len(b.buf)
	b.count++
	b.buf = append(b.buf, make([]byte, headerLen)...)
	order.PutUint16(b.buf[b.begin+4:], kind)
	order.PutUint16(b.buf[b.begin+6:], flags|unix.NLM_F_REQUEST)
	b.close()
}

// close writes the length of the message as it is now, and keeps what follows
// aligned. So no message is ever half built.
func (b *Builder) close() {
	for len(b.buf)%unix.NLMSG_ALIGNTO != 0 {
		b.buf = append(b.buf, 0)
	}
	order.PutUint32(b.buf[b.begin:], uint32(len(b.buf)-b.begin))
}

// Ack has the kernel acknowledge the message that is being built (NLM_F_ACK).
func (b *Builder) Ack() {
	order.PutUint16(b.buf[b.begin+6:], order.Uint16(b.buf[b.begin+6:])|unix.NLM_F_ACK)
}

// Raw appends a family's own header, which has no attribute's.
func (b *Builder) Raw(p []byte) {
	b.buf = append(b.buf, p...)
	b.close()
}

// Bytes appends an attribute with any value. A value longer than 65531 bytes
// panics: no attribute holds it, and who builds a message bounds its parts.
func (b *Builder) Bytes(kind uint16, value []byte) {
	b.head(kind, len(value))
	b.buf = append(b.buf, value...)
	b.close()
}

func (b *Builder) head(kind uint16, length int) {
	if attrLen+length > 0xffff {
		panic("netlink: an attribute is longer than 64 KiB")
	}
	b.buf = order.AppendUint16(b.buf, uint16(attrLen+length))
	b.buf = order.AppendUint16(b.buf, kind)
}

// String appends a text that ends with a zero byte.
func (b *Builder) String(kind uint16, value string) {
	b.head(kind, len(value)+1)
	b.buf = append(b.buf, value...)
	b.buf = append(b.buf, 0)
	b.close()
}

// Uint8 appends a number.
func (b *Builder) Uint8(kind uint16, value uint8) {
	b.head(kind, 1)
	b.buf = append(b.buf, value)
	b.close()
}

// Uint16 appends a number in the machine's order.
func (b *Builder) Uint16(kind, value uint16) {
	b.head(kind, 2)
	b.buf = order.AppendUint16(b.buf, value)
	b.close()
}

// Uint32 appends a number in the machine's order.
func (b *Builder) Uint32(kind uint16, value uint32) {
	b.head(kind, 4)
	b.buf = order.AppendUint32(b.buf, value)
	b.close()
}

// Uint64 appends a number in the machine's order.
func (b *Builder) Uint64(kind uint16, value uint64) {
	b.head(kind, 8)
	b.buf = order.AppendUint64(b.buf, value)
	b.close()
}

// Net32 appends a number in the network's order, as nftables has it.
func (b *Builder) Net32(kind uint16, value uint32) {
	b.head(kind, 4)
	b.buf = binary.BigEndian.AppendUint32(b.buf, value)
	b.close()
}

// Nest is an open attribute that holds others.
type Nest int

// Nest opens an attribute that holds those that follow, until End. It is
// marked as nested (NLA_F_NESTED), which nftables wants and rtnetlink takes.
func (b *Builder) Nest(kind uint16) Nest {
	at := Nest(len(b.buf))
	b.head(kind|nested, 0)
	b.close()
	return at
}

// End closes an attribute that Nest has opened. One longer than 64 KiB
// panics, as in Bytes; Nested tells its length.
func (b *Builder) End(at Nest) {
	length := len(b.buf) - int(at)
	if length > 0xffff {
		panic("netlink: a nested attribute is longer than 64 KiB")
	}
	order.PutUint16(b.buf[at:], uint16(length))
}

// Nested is the length in bytes of an open attribute, with its head.
func (b *Builder) Nested(at Nest) int { return len(b.buf) - int(at) }
