package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

// replayed is what a file was found to hold.
type replayed struct {
	identity
	known   bool // whether there is an identity, and so any header
	entries map[string]*entry
	seq     uint64
	newest  int64
	end     int64 // what follows is a torn tail
	damaged bool  // something before it was lost
	mark    mark  // of the newest batch that has one
}

// replayer reads a file once from its beginning to its end.
type replayer struct {
	replayed
	w       window
	seal    *sealer
	trust   bool // a plain file, too
	log     *slog.Logger
	pending []found
	scratch []byte
}

// found is a record of a batch that is not yet known to be whole.
type found struct {
	head
	at int64 // where the stored value is
}

// replay reads what a file holds. It fails if it cannot be read at all, or
// with ErrKey, ErrVersion or, unless it is trusted, ErrPlain. It takes constant
// memory beside the names.
func replay(f io.ReaderAt, size int64, seal *sealer, log *slog.Logger, trust bool) (replayed, error) {
	r := replayer{w: window{f: f, size: size, buf: make([]byte, min(windowSize, size))}, seal: seal, log: log, trust: trust}
	r.entries = make(map[string]*entry)
	if err := r.identify(); err != nil {
		return replayed{}, err
	}
	err := r.run()
	return r.replayed, err
}

// run reads batch after batch.
func (r *replayer) run() error {
	bad := int64(-1) // where damage begins that has not ended
	off := int64(0)
	for off >= 0 && off < r.w.size {
		next, whole, err := r.step(off)
		if err != nil {
			return err
		}
		switch {
		case !whole && bad < 0:
			bad = off
		case whole && bad >= 0:
			r.damaged = true
			r.log.Warn("damaged part of journal is lost", "offset", bad, "bytes", off-bad)
			bad = -1
		}
		off = next
	}
	r.end = r.w.size
	if bad >= 0 && r.known {
		r.log.Warn("torn tail of journal dropped", "offset", bad, "bytes", r.w.size-bad)
		r.end = bad
	}
	return nil
}

// identify learns the file's identity at the two places where a header is sure
// to be a header.
func (r *replayer) identify() error {
	places := []int64{0, openingSize(r.seal)}
	if r.seal != nil {
		places = append(places, openingSize(nil))
	}
	for _, off := range places {
		if off+headerSize > r.w.size {
			continue
		}
		b, err := r.w.at(off, headerSize)
		if err != nil {
			return err
		}
		if h, ok := parseHeader(b); ok {
			return r.adopt(h.identity)
		}
	}
	return nil
}

// adopt takes an identity for the file's.
func (r *replayer) adopt(id identity) error {
	if id.version != version {
		return fmt.Errorf("%w: version %d", ErrVersion, id.version)
	}
	if id.key != 0 && id.key != r.seal.keyID() {
		return ErrKey
	}
	if id.key == 0 && r.seal != nil && !r.trust {
		return ErrPlain
	}
	r.identity, r.known = id, true
	return nil
}

// step reads what stands at off and answers whether it is a whole batch, and
// where to go on; below 0 if there is no batch from there on.
func (r *replayer) step(off int64) (next int64, whole bool, err error) {
	h, ok, err := r.header(off)
	if err != nil {
		return 0, false, err
	}
	if !ok {
		next, err = r.resync(off + 1)
		return next, false, err
	}
	r.seq = h.seq // whole or not: no number is used twice
	end := off + headerSize + int64(h.length)
	if end > r.w.size {
		return -1, false, nil
	}
	whole, err = r.batch(h, off, end)
	if err != nil {
		return 0, false, err
	}
	if whole {
		r.apply(h)
	}
	return end, whole, nil
}

// header answers the header at off, if there is one that can be next.
func (r *replayer) header(off int64) (h header, ok bool, err error) {
	if off+headerSize > r.w.size {
		return header{}, false, nil
	}
	b, err := r.w.at(off, headerSize)
	if err != nil {
		return header{}, false, err
	}
	h, ok = parseHeader(b)
	if !ok || h.seq <= r.seq || h.seq >= endOfSequence {
		return header{}, false, nil
	}
	if !r.known {
		if err := r.adopt(h.identity); err != nil {
			return header{}, false, err
		}
	}
	return h, h.identity == r.identity, nil
}

// resync answers the offset of the first header at or after off, or -1.
func (r *replayer) resync(off int64) (int64, error) {
	for {
		at, err := r.w.find(magic, off)
		if at < 0 || err != nil {
			return -1, err
		}
		if _, ok, err := r.header(at); ok || err != nil {
			return at, err
		}
		off = at + 1
	}
}

// batch says whether the batch is whole, and notes what is in it.
func (r *replayer) batch(h header, off, end int64) (bool, error) {
	sum := uint32(0)
	for at := off + headerSize; at < end; {
		b, err := r.w.at(at, int(min(windowSize, end-at)))
		if err != nil {
			return false, err
		}
		sum = crc32.Update(sum, castagnoli, b)
		at += int64(len(b))
	}
	if sum != h.sum {
		return false, nil
	}
	var raw [headerSize]byte
	h.put(raw[:])
	r.pending = r.pending[:0]
	at := off + headerSize
	for number := range h.records {
		f, next, err := r.record(raw[:], number, at, end)
		if err != nil || next < 0 {
			return false, err
		}
		r.pending = append(r.pending, f)
		at = next
	}
	return at == end, nil
}

// record reads the record at an offset and answers where the next one is, which
// may be beyond the batch's end; below 0 if it is none.
func (r *replayer) record(raw []byte, number uint32, at, end int64) (found, int64, error) {
	if at+lengthSize > end {
		return found{}, -1, nil
	}
	b, err := r.w.at(at, lengthSize)
	if err != nil {
		return found{}, 0, err
	}
	at += lengthSize
	size := int64(binary.LittleEndian.Uint16(b))
	if at+size > end || size > int64(headSize+MaxKey+r.sealed().overhead()) {
		return found{}, -1, nil
	}
	b, err = r.w.at(at, int(size))
	if err != nil {
		return found{}, 0, err
	}
	at += size
	// The copy keeps the window as the file is.
	r.scratch = append(r.scratch[:0], b...)
	plain, ok := r.sealed().open(r.scratch, headData(nil, raw, number))
	if !ok {
		return found{}, -1, nil
	}
	h, ok := parseHead(plain)
	if !ok {
		return found{}, -1, nil
	}
	next := at
	if h.kind == kindPut {
		next += int64(h.size) + int64(r.sealed().overhead())
	}
	return found{h, at}, next, nil
}

// sealed is the sealer of the file, which is none if the file is plain.
func (r *replayer) sealed() *sealer {
	if r.key == 0 {
		return nil
	}
	return r.seal
}

// apply lets the batch that was just read take effect.
func (r *replayer) apply(h header) {
	r.newest = h.time
	r.mark.last = 0 // something follows it
	for i := range r.pending {
		p := &r.pending[i]
		if strings.HasPrefix(p.name, marked) {
			if m, ok := parseMark(p.name); ok && p.kind == kindPut {
				r.mark = m
			}
			continue
		}
		switch p.kind {
		case kindPut:
			r.entries[p.name] = &entry{sum: p.sum, at: p.at, seq: h.seq, size: p.size}
		case kindDelete:
			delete(r.entries, p.name)
		}
	}
}
