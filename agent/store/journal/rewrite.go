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

// rewrite puts a new file that holds what is alive in the place of the old
// one. A power cut leaves the one or the other. After an error the map is as
// before; whether the file can be written to, suspect says.
func (j *Journal) rewrite() error {
	next, entries, err := j.copyLive()
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	if err := j.disk.rename(newName, fileName); err != nil {
		// Perhaps it was renamed all the same: what would be appended to the
		// old file could belong to no name.
		j.suspect = true
		return fmt.Errorf("rewrite journal: %w", errors.Join(err, next.file.Close(), j.remove()))
	}
	old := j.cur
	j.mu.Lock()
	j.cur, j.entries = next, entries
	j.live = next.size - openingSize(next.seal)
	j.mu.Unlock()
	if old != nil {
		_ = old.file.Close() // what it had is in the new one
	}
	if err := j.disk.sync(); err != nil {
		// After a power cut the name may be the old file's again. That one
		// lacks nothing yet, but would lack what is appended here.
		j.suspect = true
		return fmt.Errorf("rewrite journal: %w", err)
	}
	j.suspect, j.unsure, j.untidy, j.retry, j.told = false, false, false, 0, false
	j.raise()
	return nil
}

// copyLive writes a new file down to the disk and answers it and what is in
// it. After an error there is none.
func (j *Journal) copyLive() (*content, map[string]*entry, error) {
	if err := j.remove(); err != nil {
		return nil, nil, err
	}
	f, err := j.disk.open(newName, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, nil, err
	}
	next := &content{file: f, id: newID(), seal: j.seal}
	entries, err := j.copyTo(next)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close(), j.remove())
	}
	return next, entries, nil
}

// copyTo writes what is alive to a file that has nothing yet, each record in a
// batch of its own: damage then costs only the record that it hits.
func (j *Journal) copyTo(next *content) (map[string]*entry, error) {
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
		read, err := j.cur.value(value, name, e)
		if errors.Is(err, ErrDamaged) {
			// To keep it would keep the file from being rewritten for ever.
			j.log.Warn("damaged value in journal is lost", "offset", e.at, "bytes", e.size, "error", err)
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
		entries[name] = &entry{sum: e.sum, at: at, seq: j.seq, size: e.size}
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

// copyRecord writes a batch of one record. Its time is that of the newest
// batch: to copy is not to change.
func (j *Journal) copyRecord(a *appender, next *content, h head, value []byte) (at int64, err error) {
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

// inFileOrder answers the keys in the order in which their values stand in the
// file, as flash and page cache like to be read.
func (j *Journal) inFileOrder() []string {
	return slices.SortedFunc(maps.Keys(j.entries), func(a, b string) int {
		return cmp.Compare(j.entries[a].at, j.entries[b].at)
	})
}

// identity is what the file's headers bear.
func (c *content) identity() identity {
	return identity{version: version, file: c.id, key: c.seal.keyID()}
}

// newID answers an id that nobody can guess.
func newID() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
