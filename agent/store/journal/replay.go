package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

// replayed is the result of a replay.
type replayed struct {
	identity
	identified bool // the identity is known: the file has a header
	entries    map[string]*entry
	seq        uint64
	newest     int64
	end        int64          // offset of a torn tail, or the file's size
	damaged    bool           // a part before end was lost
	mark       generationMark // of the newest batch that has one
}

// replayer reads a file once from its beginning to its end.
type replayer struct {
	replayed
	w       window
	seal    *sealer
	trust   bool // accept a plain file although there is a key
	log     *slog.Logger
	pending []record // of a batch that is not yet known to be intact; without values
	scratch []byte
}

// replay reads a file. It fails if the file cannot be read, or with ErrKey, ErrVersion or,
// without trust, ErrPlain. In addition to the entries it needs a window of 64 KiB, and
// memory for the heads of one batch.
func replay(f io.ReaderAt, size int64, seal *sealer, log *slog.Logger, trust bool) (replayed, error) {
	r := replayer{w: window{f: f, size: size, buf: make([]byte, min(windowSize, size))}, seal: seal, log: log, trust: trust}
	r.entries = make(map[string]*entry)
	if err := r.identify(); err != nil {
		return replayed{}, err
	}
	err := r.run()
	return r.replayed, err
}

func (r *replayer) run() error {
	bad := int64(-1) // offset of the current damaged part, or -1
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
			r.log.Warn("skip damaged part of journal", "offset", bad, "bytes", off-bad)
			bad = -1
		}
		off = next
	}
	r.end = r.w.size
	if bad >= 0 && r.identified {
		r.log.Warn("drop torn tail of journal", "offset", bad, "bytes", r.w.size-bad)
		r.end = bad
	}
	return nil
}

// identify reads the file's identity from the first header or, if that is damaged, from
// the second one. Their offsets are known.
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
			return r.setIdentity(h.identity)
		}
	}
	return nil
}

// setIdentity checks an identity and sets it as the file's. It fails with ErrVersion,
// ErrKey or ErrPlain.
func (r *replayer) setIdentity(id identity) error {
	if id.version != version {
		return fmt.Errorf("%w: version %d", ErrVersion, id.version)
	}
	if id.key != 0 && id.key != r.seal.keyID() {
		return ErrKey
	}
	if id.key == 0 && r.seal != nil && !r.trust {
		return ErrPlain
	}
	r.identity, r.identified = id, true
	return nil
}

// step reads at off. whole reports whether there is an intact batch. next is the
// offset to continue at, below 0 if no further batch can follow.
func (r *replayer) step(off int64) (next int64, whole bool, err error) {
	h, ok, err := r.header(off)
	if err != nil {
		return 0, false, err
	}
	if !ok {
		next, err = r.resync(off + 1)
		return next, false, err
	}
	r.seq = h.seq // intact or not: no number is used twice
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

// header returns the header at off. ok is false if there is no header that can
// follow the batches read so far.
func (r *replayer) header(off int64) (h header, ok bool, err error) {
	if off+headerSize > r.w.size {
		return header{}, false, nil
	}
	b, err := r.w.at(off, headerSize)
	if err != nil {
		return header{}, false, err
	}
	h, ok = parseHeader(b)
	if !ok || h.seq <= r.seq || h.seq >= endOfSequence || h.length > maxLength {
		return header{}, false, nil
	}
	if !r.identified {
		if err := r.setIdentity(h.identity); err != nil {
			return header{}, false, err
		}
	}
	return h, h.identity == r.identity, nil
}

// resync returns the offset of the first header at or after off, or -1.
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

// batch reports whether the batch is intact, and stores its records in r.pending.
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

// record reads the record at an offset and returns the offset of the next one,
// which may be beyond the batch's end. The offset is below 0 if there is no valid
// record.
func (r *replayer) record(raw []byte, number uint32, at, end int64) (record, int64, error) {
	if at+lengthSize > end {
		return record{}, -1, nil
	}
	b, err := r.w.at(at, lengthSize)
	if err != nil {
		return record{}, 0, err
	}
	at += lengthSize
	size := int64(binary.LittleEndian.Uint16(b))
	if at+size > end || size > int64(headSize+MaxKey+r.fileSealer().overhead()) {
		return record{}, -1, nil
	}
	b, err = r.w.at(at, int(size))
	if err != nil {
		return record{}, 0, err
	}
	at += size
	// Decryption in place would change the window.
	r.scratch = append(r.scratch[:0], b...)
	plain, ok := r.fileSealer().open(r.scratch, headData(nil, raw, number))
	if !ok {
		return record{}, -1, nil
	}
	h, ok := parseHead(plain)
	if !ok {
		return record{}, -1, nil
	}
	next := at
	if h.kind == kindPut {
		next += int64(h.size) + int64(r.fileSealer().overhead())
	}
	return record{head: h, offset: at}, next, nil
}

// fileSealer returns the sealer of the file, nil if the file is plain.
func (r *replayer) fileSealer() *sealer {
	if r.key == 0 {
		return nil
	}
	return r.seal
}

// apply applies the pending records of the batch that was just read.
func (r *replayer) apply(h header) {
	r.newest = h.time
	r.mark.last = 0 // a record follows it
	for i := range r.pending {
		p := &r.pending[i]
		if strings.HasPrefix(p.name, markPrefix) {
			if m, ok := parseMark(p.name); ok && p.kind == kindPut {
				r.mark = m
			}
			continue
		}
		switch p.kind {
		case kindPut:
			r.entries[p.name] = &entry{sum: p.sum, offset: p.offset, seq: h.seq, size: p.size}
		case kindDelete:
			delete(r.entries, p.name)
		}
	}
}
