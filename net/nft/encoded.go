package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nameLen is the length of a name with its zero byte that needs no memory of
// its own.
const nameLen = 64

// encoded is attributes behind attributes, outside of any message, so that they
// can be compared with the kernel's.
type encoded struct{ code []byte }

func (e *encoded) attribute(kind uint16, value []byte) {
	e.code = binary.NativeEndian.AppendUint16(e.code, uint16(unix.SizeofNlAttr+len(value)))
	e.code = binary.NativeEndian.AppendUint16(e.code, kind)
	e.code = append(e.code, value...)
	for len(e.code)%unix.NLMSG_ALIGNTO != 0 {
		e.code = append(e.code, 0)
	}
}

// number is in the network's order.
func (e *encoded) number(kind uint16, value uint32) {
	var data [4]byte
	binary.BigEndian.PutUint32(data[:], value)
	e.attribute(kind, data[:])
}

// text ends with a zero byte.
func (e *encoded) text(kind uint16, value string) {
	var data [nameLen]byte
	e.attribute(kind, append(append(data[:0], value...), 0))
}

// open starts an attribute that holds others, until close. None is marked as
// nested, as the kernel does not mark its own.
func (e *encoded) open(kind uint16) int {
	at := len(e.code)
	e.attribute(kind, nil)
	return at
}

func (e *encoded) close(at int) {
	binary.NativeEndian.PutUint16(e.code[at:], uint16(len(e.code)-at))
}

// value holds what is for or from a register.
func (e *encoded) value(kind uint16, data []byte) {
	at := e.open(kind)
	e.attribute(unix.NFTA_DATA_VALUE, data)
	e.close(at)
}
