package netlink

import (
	"errors"
	"iter"
)

// errShort says that a message or an attribute ends before it should.
var errShort = errors.New("netlink: a message is cut short")

// message is one of several in what was received.
type message struct {
	kind, flags uint16
	seq, port   uint32
	payload     []byte
}

// next takes the first message off data; ok is false where none is whole.
func next(data []byte) (m message, rest []byte, ok bool) {
	if len(data) < headerLen {
		return m, nil, false
	}
	length := uint64(order.Uint32(data))
	if length < headerLen || length > uint64(len(data)) {
		return m, nil, false
	}
	m = message{
		kind:    order.Uint16(data[4:]),
		flags:   order.Uint16(data[6:]),
		seq:     order.Uint32(data[8:]),
		port:    order.Uint32(data[12:]),
		payload: data[headerLen:length],
	}
	return m, data[min(align(int(length)), len(data)):], true
}

func align(n int) int { return (n + 3) &^ 3 }

// Attributes goes through attributes that stand one behind the other, without
// their flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER). The values share data's
// memory. It ends at the first that is not whole.
func Attributes(data []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= attrLen {
			length := int(order.Uint16(data))
			if length < attrLen || length > len(data) {
				return
			}
			if !yield(order.Uint16(data[2:])&0x3fff, data[attrLen:length]) {
				return
			}
			data = data[min(align(length), len(data)):]
		}
	}
}

// Attribute finds one attribute, nil if there is none. One without a value is
// empty, but not nil.
func Attribute(data []byte, kind uint16) []byte {
	for k, value := range Attributes(data) {
		if k == kind {
			return value
		}
	}
	return nil
}

// Text is an attribute's text without the zero byte that ends it.
func Text(value []byte) string {
	for i, c := range value {
		if c == 0 {
			return string(value[:i])
		}
	}
	return string(value)
}

// Number32 is an attribute's number in the machine's order, 0 if it has none.
func Number32(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return order.Uint32(value)
}
