package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// Read returns the value of a key, and whether there is one. The caller owns the
// value. It blocks on the disk.
//
// The error wraps ErrDamaged if the value on the disk is not the one that was
// written. The next Write of the key then writes the value even if it is the
// same. After Close the error wraps fs.ErrClosed.
func (j *Journal) Read(key string) ([]byte, bool, error) {
	value, e, err := j.read(key)
	if errors.Is(err, ErrDamaged) {
		j.mu.Lock()
		e.damaged = true
		j.mu.Unlock()
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %q from journal %q: %w", key, j.path, err)
	}
	return value, e != nil, nil
}

func (j *Journal) read(key string) ([]byte, *entry, error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if j.closed {
		return nil, nil, fs.ErrClosed
	}
	e := j.entries[key]
	if e == nil {
		return nil, nil, nil
	}
	value, err := j.cur.readValue(nil, key, e)
	return value, e, err
}

// readValue reads a value from the disk. The result may use the memory of b.
func (c *openFile) readValue(b []byte, name string, e *entry) ([]byte, error) {
	size := int(e.size) + c.seal.overhead()
	b = slices.Grow(b[:0], size)[:size]
	if n, err := c.file.ReadAt(b, e.offset); n < size {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: the file ends within it", ErrDamaged)
		}
		return nil, err
	}
	value, ok := c.seal.open(b, valueData(nil, c.id, e.seq, name))
	if !ok || hashOf(value) != e.sum {
		return nil, ErrDamaged
	}
	return value, nil
}
