package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// minDeadBytes is the number of dead bytes that a file may always hold before it is
// rewritten.
const minDeadBytes = 64 << 10

// Change is one change of the map.
type Change struct {
	// Key has 1 to MaxKey bytes.
	Key string
	// Value is the new value, which may be empty. Nil deletes the key.
	Value []byte
}

// Write makes the changes, all or none of them even across a power cut, and
// returns when they are on the disk. If several changes have one key, the last
// one counts. Changes that equal the stored state are not written. If none is
// left, Write does not access the disk. It does not retain the values. It blocks
// on the disk.
//
// After an error the map is as before, and a later Write succeeds once the cause is gone.
// The error wraps the system's error (ENOSPC, EDQUOT, EIO, EROFS). If power fails right
// after an error, the whole batch may be there later. After Close the error wraps
// fs.ErrClosed.
func (j *Journal) Write(changes ...Change) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	if j.closed {
		return fmt.Errorf("write journal %q: %w", j.path, fs.ErrClosed)
	}
	batch, err := j.changed(changes)
	if err != nil {
		return fmt.Errorf("write journal %q: %w", j.path, err)
	}
	if len(batch) == 0 && !j.unsynced {
		return nil
	}
	if err := j.write(batch); err != nil {
		return fmt.Errorf("write %d changes to journal %q: %w", len(batch), j.path, err)
	}
	j.compact()
	return nil
}

// changed returns the changes that differ from the stored state.
func (j *Journal) changed(changes []Change) ([]record, error) {
	last := make(map[string]int, len(changes)) // by key
	for i := range changes {
		last[changes[i].Key] = i
	}
	var batch []record
	var size int64
	for i := range changes {
		c := &changes[i]
		if len(c.Key) == 0 || len(c.Key) > MaxKey {
			return nil, fmt.Errorf("key has %d bytes, not 1 to %d", len(c.Key), MaxKey)
		}
		if strings.HasPrefix(c.Key, markPrefix) {
			return nil, fmt.Errorf("key %q is reserved", c.Key)
		}
		if len(c.Value) > MaxBatch {
			return nil, fmt.Errorf("value of %q has %d bytes, more than %d", c.Key, len(c.Value), MaxBatch)
		}
		if last[c.Key] != i {
			continue
		}
		h := head{kind: kindDelete, name: c.Key}
		if c.Value != nil {
			h = head{kind: kindPut, name: c.Key, size: uint32(len(c.Value)), sum: hashOf(c.Value)}
		}
		if j.unchanged(&h) {
			continue
		}
		if size += h.stored(j.seal); size > MaxBatch {
			return nil, fmt.Errorf("changes have more than %d bytes", MaxBatch)
		}
		batch = append(batch, record{head: h, value: c.Value})
	}
	return batch, nil
}

// unchanged reports whether the record equals the stored state.
func (j *Journal) unchanged(h *head) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	e := j.entries[h.name]
	if h.kind == kindDelete {
		return e == nil
	}
	return e != nil && !e.damaged && e.size == h.size && e.sum == h.sum
}

// write writes the batch to the disk and applies it. It rewrites the file first if
// j.mustRewrite is set, and once more if the append sets it.
func (j *Journal) write(batch []record) error {
	if j.mustRewrite {
		if err := j.rewrite(); err != nil {
			return err
		}
	}
	if len(batch) == 0 {
		return nil
	}
	err := j.append(batch)
	if err != nil && j.mustRewrite {
		// The file can no longer be written to. A new file may work.
		if again := j.rewrite(); again != nil {
			return errors.Join(err, again)
		}
		j.log.Warn("rewrote journal after error", "error", err)
		err = j.append(batch)
	}
	return err
}

// append appends the batch to the file and applies it. After an error the file is as
// before, or j.mustRewrite is set.
func (j *Journal) append(batch []record) error {
	c := j.cur
	j.seq++
	h := header{identity: c.identity(), records: uint32(len(batch)), seq: j.seq, time: time.Now().UnixNano()}
	for i := range batch {
		h.length += uint32(batch[i].stored(c.seal))
	}
	a := appender{f: c.file, seal: c.seal, off: c.size}
	if err := a.batch(h, batch); err != nil {
		if undo := c.file.Truncate(c.size); undo != nil {
			j.mustRewrite = true
			err = errors.Join(err, undo)
		}
		return err
	}
	if err := c.file.Datasync(); err != nil {
		j.mustRewrite = true
		// If the process ends without a power cut, the next one must not find
		// a batch that this one reported as failed.
		return errors.Join(err, c.file.Truncate(c.size))
	}

	j.mu.Lock()
	defer j.mu.Unlock()
	c.size, j.newest = a.off, h.time
	for i := range batch {
		r := &batch[i]
		if old := j.entries[r.name]; old != nil {
			j.live -= old.stored(r.name, c.seal)
			delete(j.entries, r.name)
		}
		if r.kind == kindPut {
			e := &entry{sum: r.sum, offset: r.offset, seq: h.seq, size: r.size}
			j.live += e.stored(r.name, c.seal)
			j.entries[r.name] = e
		}
	}
	return nil
}

// batch writes one batch and flushes it. It sets the offsets of the records.
func (a *appender) batch(h header, batch []record) error {
	if err := a.begin(h); err != nil {
		return err
	}
	for i := range batch {
		r := &batch[i]
		var err error
		if r.offset, err = a.record(r.head, r.value); err != nil {
			return err
		}
	}
	if err := a.finish(); err != nil {
		return err
	}
	return a.flush()
}

// compact rewrites the file if too much of it is dead. A failure is logged once and
// retried when the file has grown. It does not fail the Write, whose changes are
// durable already.
func (j *Journal) compact() {
	dead := j.cur.size - openingSize(j.cur.seal) - j.live
	if (dead <= max(j.live, minDeadBytes) && !j.damaged) || j.cur.size < j.retrySize {
		return
	}
	if err := j.rewrite(); err != nil {
		if !j.rewriteFailureLogged {
			j.log.Warn("cannot compact journal", "bytes", j.cur.size, "dead", dead, "error", err)
		}
		j.rewriteFailureLogged = true
		j.retrySize = j.cur.size + minDeadBytes
	}
}
