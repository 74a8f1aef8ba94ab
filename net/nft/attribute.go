package nft

import (
	"bytes"
	"encoding/binary"
	"iter"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// native is the byte order of the machine, which netlink's own headers have.
var native = binary.NativeEndian

// headerLen is the length of struct nfgenmsg, which precedes the attributes.
const headerLen = 4

// message returns a request of a netfilter subsystem.
func message(subsystem, kind uint16, flags netlink.HeaderFlags, family nftables.TableFamily, resource uint16, all ...netlink.Attribute) netlink.Message {
	data := append([]byte{byte(family), unix.NFNETLINK_V0, byte(resource >> 8), byte(resource)}, encode(all...)...)
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(subsystem<<8 | kind), Flags: netlink.Request | flags}, Data: data}
}

// encode returns the encoded attributes in their order. The caller bounds their length: an
// attribute holds 64 KiB.
func encode(all ...netlink.Attribute) []byte {
	data, err := netlink.MarshalAttributes(all)
	if err != nil {
		panic("nft: an attribute with a length of its own: " + err.Error())
	}
	return data
}

func bytesOf(kind uint16, value []byte) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: value}
}

// text returns an attribute with a text and a terminating zero byte.
func text(kind uint16, value string) netlink.Attribute { return bytesOf(kind, []byte(value+"\x00")) }

// number returns an attribute with a number in network byte order.
func number(kind uint16, value uint32) netlink.Attribute {
	return bytesOf(kind, binary.BigEndian.AppendUint32(nil, value))
}

func nested(kind uint16, all ...netlink.Attribute) netlink.Attribute {
	return bytesOf(kind|unix.NLA_F_NESTED, encode(all...))
}

// attributes are the encoded attributes of a message or of a nested attribute.
// They are read in place: netlink.AttributeDecoder copies each value, and with it Verify
// made 4800 allocations instead of 1600.
type attributes []byte

// attributesOf returns the attributes that follow struct nfgenmsg.
func attributesOf(payload []byte) attributes { return payload[min(headerLen, len(payload)):] }

// each iterates over the types, with their flags, and the values. It ends before
// an attribute that is not complete.
func (all attributes) each() iter.Seq2[uint16, attributes] {
	return func(yield func(uint16, attributes) bool) {
		for len(all) >= unix.SizeofNlAttr {
			length := int(native.Uint16(all))
			if length < unix.SizeofNlAttr || length > len(all) ||
				!yield(native.Uint16(all[2:]), all[unix.SizeofNlAttr:length]) {
				return
			}
			all = all[min(align(length), len(all)):]
		}
	}
}

// withoutFlags removes the flags of an attribute's type.
func withoutFlags(kind uint16) uint16 { return kind &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER) }

// value returns the value of the first attribute of a type, nil for none.
func (all attributes) value(kind uint16) attributes {
	for k, value := range all.each() {
		if withoutFlags(k) == kind {
			return value
		}
	}
	return nil
}

// number returns a number in network byte order, 0 for none.
func (all attributes) number(kind uint16) uint32 {
	value := all.value(kind)
	if len(value) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// text returns a text without the zero byte that ends it.
func (all attributes) text(kind uint16) string {
	value, _, _ := bytes.Cut(all.value(kind), []byte{0})
	return string(value)
}

// same reports whether the attributes that the kernel lists are these. The kernel lists
// them in an order of its own, does not mark nested ones, and leaves out or adds
// some that are zero.
func (all attributes) same(listed attributes) bool {
	for kind, value := range all.each() {
		have := listed.value(withoutFlags(kind))
		switch {
		case kind&unix.NLA_F_NESTED != 0:
			if !value.same(have) {
				return false
			}
		case !bytes.Equal(value, have) && !(have == nil && zero(value)):
			return false
		}
	}
	for kind, value := range listed.each() {
		if all.value(withoutFlags(kind)) == nil && !zero(value) {
			return false
		}
	}
	return true
}

func zero(value []byte) bool { return len(bytes.Trim(value, "\x00")) == 0 }

// commentLen is the longest comment that the nft program lists.
const commentLen = 127

// Comments are user data, which the kernel stores and does not read. The nft
// program numbers their type by the object.
const (
	commentOfTable   = userdata.TypeComment
	commentOfRule    = userdata.TypeComment
	commentOfElement = userdata.NFTNL_UDATA_SET_ELEM_COMMENT
	commentOfSet     = userdata.NFTNL_UDATA_SET_COMMENT
)

func commentData(kind userdata.Type, comment string) []byte {
	return userdata.AppendString(nil, kind, comment[:min(len(comment), commentLen)])
}

// commentOf reads the comment in the user data of a rule or an element. Other
// processes may have written it: userdata.GetString panics where a length in it
// is too large.
func commentOf(data []byte) string {
	for len(data) >= 2 {
		length := 2 + int(data[1])
		if length > len(data) {
			return ""
		}
		if data[0] == byte(commentOfElement) {
			return string(bytes.TrimSuffix(data[2:length], []byte{0}))
		}
		data = data[length:]
	}
	return ""
}
