package journal

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// chunk is the size of one write in bytes. A large batch takes about as much
// memory in addition to its largest value.
const chunk = 256 << 10

// entry is the index entry of a key.
type entry struct {
	sum     valueHash
	offset  int64 // offset of the stored value
	seq     uint64
	size    uint32 // of the value
	damaged bool   // its value could not be read
}

// head returns the head of the put record that made the entry.
func (e *entry) head(name string) head {
	return head{kind: kindPut, size: e.size, sum: e.sum, name: name}
}

// stored returns the size of the entry, in bytes, in a batch of its own.
func (e *entry) stored(name string, seal *sealer) int64 {
	h := e.head(name)
	return headerSize + h.stored(seal)
}

// appender writes batches, buffered in chunks. For each batch the caller calls
// begin, record as often as the header has records, and finish. flush writes the
// rest of the buffer.
type appender struct {
	f    file
	seal *sealer

	buf []byte
	off int64 // of buf in the file

	head   header
	at     int64 // offset of the open batch
	number uint32
	raw    [headerSize]byte
	// plain is a buffer for the data to seal, scratch for the additional data.
	scratch, plain []byte
}

// begin begins a batch. The header must be complete except for the payload's
// sum, which is 0.
func (a *appender) begin(h header) error {
	size := headerSize + int(h.length)
	if len(a.buf) > 0 && len(a.buf)+size > chunk {
		if err := a.flush(); err != nil {
			return err
		}
	}
	a.buf = slices.Grow(a.buf, min(size, chunk))
	a.head, a.at, a.number = h, a.end(), 0
	a.head.put(a.raw[:])
	// Zeros are not a valid header: the batch is incomplete.
	a.buf = append(a.buf, make([]byte, headerSize)...)
	return nil
}

// record adds a record to the batch and returns the offset of its stored value.
func (a *appender) record(h head, value []byte) (at int64, err error) {
	size := int(h.stored(a.seal))
	if a.end() > a.at+headerSize && len(a.buf)+size > chunk {
		if err := a.flush(); err != nil {
			return 0, err
		}
	}
	a.buf = slices.Grow(a.buf, size)
	start := len(a.buf)
	a.buf = binary.LittleEndian.AppendUint16(a.buf, uint16(headSize+len(h.name)+a.seal.overhead()))
	a.plain = h.append(a.plain[:0])
	a.scratch = headData(a.scratch[:0], a.raw[:], a.number)
	a.buf = a.seal.seal(a.buf, a.plain, a.scratch)
	at = a.end()
	if h.kind == kindPut {
		a.scratch = valueData(a.scratch[:0], a.head.file, a.head.seq, h.name)
		a.buf = a.seal.seal(a.buf, value, a.scratch)
	}
	a.number++
	a.head.sum = crc32.Update(a.head.sum, castagnoli, a.buf[start:])
	return at, nil
}

// finish completes the batch. If a part of the batch is in the file already, the
// header is written last: a power cut before that leaves no batch.
func (a *appender) finish() error {
	a.head.put(a.raw[:])
	if a.at >= a.off {
		copy(a.buf[a.at-a.off:], a.raw[:])
		return nil
	}
	if err := a.flush(); err != nil {
		return err
	}
	_, err := a.f.WriteAt(a.raw[:], a.at)
	return err
}

// end returns the file offset of the next byte.
func (a *appender) end() int64 { return a.off + int64(len(a.buf)) }

func (a *appender) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	if _, err := a.f.WriteAt(a.buf, a.off); err != nil {
		return err
	}
	a.off += int64(len(a.buf))
	a.buf = a.buf[:0]
	return nil
}
