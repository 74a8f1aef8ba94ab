package journal

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
)

// rewrite replaces the file by a new one that holds only live records. A power cut leaves
// one of the two. Damaged values are dropped and logged. After an error the map is as
// before except for those, and j.mustRewrite is set if the file must not be appended to.
func (j *Journal) rewrite() error {
	next, entries, err := j.copyLive()
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	if err := j.disk.rename(newName, fileName); err != nil {
		// The file may have been renamed all the same. Data appended to the old
		// file could then belong to no name.
		j.mustRewrite = true
		return fmt.Errorf("rewrite journal: %w", errors.Join(err, next.file.Close(), j.disk.remove(newName)))
	}
	old := j.cur
	j.mu.Lock()
	j.cur, j.entries = next, entries
	j.live = next.size - openingSize(next.seal)
	j.mu.Unlock()
	if old != nil {
		_ = old.file.Close() // its content is in the new one
	}
	if err := j.disk.sync(); err != nil {
		// After a power cut the name may refer to the old file again. That file
		// is still complete, but would lack what is appended to the new one.
		j.mustRewrite = true
		return fmt.Errorf("rewrite journal: %w", err)
	}
	j.mustRewrite, j.unsynced, j.damaged, j.retrySize, j.rewriteFailureLogged = false, false, false, 0, false
	j.advanceAnchor()
	return nil
}

// copyLive writes and syncs a new file. It returns the file and its entries.
// After an error there is no new file.
func (j *Journal) copyLive() (*openFile, map[string]*entry, error) {
	if err := j.disk.remove(newName); err != nil {
		return nil, nil, err
	}
	f, _, err := j.disk.open(newName, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, nil, err
	}
	next := &openFile{file: f, id: newID(), seal: j.seal}
	entries, err := j.copyTo(next)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close(), j.disk.remove(newName))
	}
	return next, entries, nil
}

// copyTo writes the live records to an empty file, each in a batch of its own, so
// that damage destroys only the record that it hits.
func (j *Journal) copyTo(next *openFile) (map[string]*entry, error) {
	a := appender{f: next.file, seal: next.seal}
	if _, err := j.copyRecord(&a, next, head{kind: kindOpening}, nil); err != nil {
		return nil, err
	}
	if err := j.copyMark(&a, next, false); err != nil {
		return nil, err
	}
	entries := make(map[string]*entry, len(j.entries))
	var value []byte
	for _, name := range j.inFileOrder() {
		e := j.entries[name]
		read, err := j.cur.readValue(value, name, e)
		if errors.Is(err, ErrDamaged) {
			// Otherwise the file could never be rewritten.
			j.log.Warn("drop damaged value from journal", "offset", e.offset, "bytes", e.size, "error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		value = read
		at, err := j.copyRecord(&a, next, e.head(name), value)
		if err != nil {
			return nil, err
		}
		entries[name] = &entry{sum: e.sum, offset: at, seq: j.seq, size: e.size}
	}
	if err := j.copyMark(&a, next, true); err != nil {
		return nil, err
	}
	if err := a.flush(); err != nil {
		return nil, err
	}
	next.size = a.off
	return entries, nil
}

// copyRecord writes a batch of one record. The batch has the time of the newest
// batch, since copying changes nothing.
func (j *Journal) copyRecord(a *appender, next *openFile, h head, value []byte) (at int64, err error) {
	j.seq++
	err = a.begin(header{
		identity: next.identity(),
		records:  1,
		seq:      j.seq,
		time:     j.newest,
		length:   uint32(h.stored(next.seal)),
	})
	if err != nil {
		return 0, err
	}
	at, err = a.record(h, value)
	if err != nil {
		return 0, err
	}
	return at, a.finish()
}

// inFileOrder returns the keys in the order of their values in the file:
// sequential reads are cheaper for flash and page cache.
func (j *Journal) inFileOrder() []string {
	return slices.SortedFunc(maps.Keys(j.entries), func(a, b string) int {
		return cmp.Compare(j.entries[a].offset, j.entries[b].offset)
	})
}

// identity returns the identity of the file's headers.
func (c *openFile) identity() identity {
	return identity{version: version, file: c.id, key: c.seal.keyID()}
}

// newID returns an id from the kernel's random number generator.
func newID() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
