package journal

import (
	"crypto/sha256"
	"encoding/binary"
)

const (
	kindPut     = 1
	kindDelete  = 2
	kindOpening = 3
)

const (
	// headSize is the size of a head without its name.
	headSize = 1 + 4 + sumSize
	// sumSize is the number of bytes of SHA-256 that are stored. They are
	// enough to make collisions infeasible, deliberate ones included.
	sumSize = 16
	// lengthSize is the size of the length before a stored head.
	lengthSize = 2
)

// valueHash is the truncated hash of a value.
type valueHash [sumSize]byte

func hashOf(value []byte) valueHash {
	all := sha256.Sum256(value)
	return valueHash(all[:sumSize])
}

// head is a record without its value.
type head struct {
	kind byte
	size uint32 // of the value
	sum  valueHash
	name string
}

// record is one record of a batch.
type record struct {
	head
	value  []byte
	offset int64 // of the stored value in the file
}

// append appends the plain form of the head to b.
func (h *head) append(b []byte) []byte {
	b = append(b, h.kind)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = append(b, h.sum[:]...)
	return append(b, h.name...)
}

// parseHead decodes the plain form of a head. ok is false if it is not a head
// that this package writes.
func parseHead(b []byte) (h head, ok bool) {
	if len(b) < headSize || len(b) > headSize+MaxKey {
		return head{}, false
	}
	h = head{kind: b[0], size: binary.LittleEndian.Uint32(b[1:]), sum: valueHash(b[5:headSize]), name: string(b[headSize:])}
	switch h.kind {
	case kindPut:
		return h, h.name != ""
	case kindDelete:
		return h, h.name != "" && h.size == 0 && h.sum == valueHash{}
	case kindOpening:
		return h, h.name == "" && h.size == 0 && h.sum == valueHash{}
	default:
		return head{}, false
	}
}

// stored returns the size of the record on the disk in bytes.
func (h *head) stored(seal *sealer) int64 {
	size := int64(lengthSize + headSize + len(h.name) + seal.overhead())
	if h.kind == kindPut {
		size += int64(h.size) + int64(seal.overhead())
	}
	return size
}

// openingSize returns the size of an empty file, which has an opening batch only.
func openingSize(seal *sealer) int64 {
	return headerSize + (&head{kind: kindOpening}).stored(seal)
}
