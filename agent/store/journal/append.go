package journal

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// chunk is how many bytes are written at once, and about what a large batch
// takes of memory beside its largest value.
const chunk = 256 << 10

// entry is what is known of a key.
type entry struct {
	sum     sum
	at      int64 // where the stored value is
	seq     uint64
	size    uint32 // of the value
	damaged bool   // its value could not be read
}

// head is the head of the record that put the entry there.
func (e *entry) head(name string) head {
	return head{kind: kindPut, size: e.size, sum: e.sum, name: name}
}

// stored is what the entry takes in a batch of its own.
func (e *entry) stored(name string, seal *sealer) int64 {
	h := e.head(name)
	return headerSize + h.stored(seal)
}

// appender writes batches, gathered in chunks. It is begin, as many records as
// the header says, finish, and so on; flush writes what is left.
type appender struct {
	f    file
	seal *sealer

	buf []byte
	off int64 // where buf belongs in the file

	head   header
	at     int64 // where the open batch begins
	number uint32
	raw    [headerSize]byte
	// scratch and plain are for what is sealed and what vouches for it.
	scratch, plain []byte
}

// begin begins a batch. All of its header must be known but the payload's sum,
// which is 0.
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
	// Zeros: a header that is not yet complete is none.
	a.buf = append(a.buf, make([]byte, headerSize)...)
	return nil
}

// record adds a record to the batch and answers where its stored value is.
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
	if a.seal == nil {
		a.buf = h.append(a.buf)
		at = a.end()
		a.buf = append(a.buf, value...)
	} else {
		a.plain = h.append(a.plain[:0])
		a.scratch = headData(a.scratch[:0], a.raw[:], a.number)
		a.buf = a.seal.seal(a.buf, a.plain, a.scratch)
		at = a.end()
		if h.kind == kindPut {
			a.scratch = valueData(a.scratch[:0], a.head.file, a.head.seq, h.name)
			a.buf = a.seal.seal(a.buf, value, a.scratch)
		}
	}
	a.number++
	a.head.sum = crc32.Update(a.head.sum, castagnoli, a.buf[start:])
	return at, nil
}

// finish completes the batch. Its header is written last if some of it was
// written already: until then a power cut leaves no batch.
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

// end is where the next byte goes.
func (a *appender) end() int64 { return a.off + int64(len(a.buf)) }

// flush writes what was gathered.
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
