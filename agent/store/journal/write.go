package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// spare is how many dead bytes a file may hold before it is rewritten,
// however little is alive.
const spare = 64 << 10

// Change is one change of the map.
type Change struct {
	// Key has 1 to MaxKey bytes.
	Key string
	// Value is the new one, which may be empty; nil deletes the key.
	Value []byte
}

// record is a change that changes something.
type record struct {
	head
	value []byte
}

// Write makes the changes, all or none of them also across a power cut, and
// returns when they are on the disk. Of several changes of one key the last
// counts. What changes nothing is not written; if nothing is left, there is no
// access to the disk. Values are not kept. It blocks on the disk.
//
// After an error the map is as before, and a later Write works once its cause
// has gone: the error wraps what the system said (ENOSPC, EDQUOT, EIO, EROFS).
// Only if power fails right after an error may all of the batch be there
// later. After Close the error is fs.ErrClosed.
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
	if len(batch) == 0 && !j.unsure {
		return nil
	}
	if err := j.write(batch); err != nil {
		return fmt.Errorf("write %d changes to journal %q: %w", len(batch), j.path, err)
	}
	j.tidy()
	return nil
}

// changed answers what differs from what is stored.
func (j *Journal) changed(changes []Change) ([]record, error) {
	var last map[string]int // by key
	if len(changes) > 1 {
		last = make(map[string]int, len(changes))
		for i := range changes {
			last[changes[i].Key] = i
		}
	}
	var batch []record
	var size int64
	for i := range changes {
		c := &changes[i]
		if len(c.Key) == 0 || len(c.Key) > MaxKey {
			return nil, fmt.Errorf("a key has %d bytes, not 1 to %d", len(c.Key), MaxKey)
		}
		if strings.HasPrefix(c.Key, marked) {
			return nil, fmt.Errorf("the key %q is the journal's own", c.Key)
		}
		if len(c.Value) > MaxBatch {
			return nil, fmt.Errorf("value of %q has %d bytes, more than %d", c.Key, len(c.Value), MaxBatch)
		}
		if last != nil && last[c.Key] != i {
			continue
		}
		h := head{kind: kindDelete, name: c.Key}
		if c.Value != nil {
			h = head{kind: kindPut, name: c.Key, size: uint32(len(c.Value)), sum: sumOf(c.Value)}
		}
		if j.has(&h) {
			continue
		}
		if size += h.stored(j.seal); size > MaxBatch {
			return nil, fmt.Errorf("the changes take more than %d bytes", MaxBatch)
		}
		batch = append(batch, record{h, c.Value})
	}
	return batch, nil
}

// has says whether a record would change nothing.
func (j *Journal) has(h *head) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	e := j.entries[h.name]
	if h.kind == kindDelete {
		return e == nil
	}
	return e != nil && !e.damaged && e.size == h.size && e.sum == h.sum
}

// write writes the batch down to the disk and lets it take effect.
func (j *Journal) write(batch []record) error {
	if j.suspect {
		if err := j.rewrite(); err != nil {
			return err
		}
	}
	if len(batch) == 0 {
		return nil
	}
	err := j.append(batch)
	if err != nil && j.suspect {
		// The file is lost for writing, but perhaps the disk is not.
		if again := j.rewrite(); again != nil {
			return errors.Join(err, again)
		}
		j.log.Warn("journal was rewritten after an error", "error", err)
		err = j.append(batch)
	}
	return err
}

// append appends the batch to the file. After an error the file is as before,
// or suspect.
func (j *Journal) append(batch []record) error {
	c := j.cur
	j.seq++
	h := header{identity: c.identity(), records: uint32(len(batch)), seq: j.seq, time: time.Now().UnixNano()}
	for i := range batch {
		h.length += uint32(batch[i].stored(c.seal))
	}
	a := appender{f: c.file, seal: c.seal, off: c.size}
	placed := make([]int64, len(batch))
	if err := a.batch(h, batch, placed); err != nil {
		if undo := c.file.Truncate(c.size); undo != nil {
			j.suspect = true
			err = errors.Join(err, undo)
		}
		return err
	}
	if err := c.file.Datasync(); err != nil {
		j.suspect = true
		// For the case that the process ends without a power cut: the next
		// one is not to find what this one does not have.
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
			e := &entry{sum: r.sum, at: placed[i], seq: h.seq, size: r.size}
			j.live += e.stored(r.name, c.seal)
			j.entries[r.name] = e
		}
	}
	return nil
}

// batch writes one batch and nothing else, and notes where the values are.
func (a *appender) batch(h header, batch []record, placed []int64) error {
	if err := a.begin(h); err != nil {
		return err
	}
	for i := range batch {
		at, err := a.record(batch[i].head, batch[i].value)
		if err != nil {
			return err
		}
		placed[i] = at
	}
	if err := a.finish(); err != nil {
		return err
	}
	return a.flush()
}

// tidy rewrites the file if too much of it is dead. What it does is no part of
// the Write that was just made durable, so its failure is none either.
func (j *Journal) tidy() {
	dead := j.cur.size - openingSize(j.cur.seal) - j.live
	if (dead <= max(j.live, spare) && !j.untidy) || j.cur.size < j.retry {
		return
	}
	if err := j.rewrite(); err != nil {
		if !j.told {
			j.log.Warn("journal could not be tidied up", "bytes", j.cur.size, "dead", dead, "error", err)
		}
		j.told = true
		j.retry = j.cur.size + spare
	}
}
