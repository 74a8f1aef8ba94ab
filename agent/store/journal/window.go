package journal

import (
	"bytes"
	"errors"
	"io"
)

// windowSize is the size, in bytes, of the part of a file that is in memory while
// it is read.
const windowSize = 64 << 10

// window is the part of a file that was read last. Slices of it are valid
// until the next call.
type window struct {
	f    io.ReaderAt
	size int64 // of the file
	buf  []byte
	off  int64 // of data in the file
	data []byte
}

// at returns n bytes at off. n is at most windowSize, and the bytes must lie
// within the file.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off < w.off || off+int64(n) > w.off+int64(len(w.data)) {
		if err := w.fill(off); err != nil {
			return nil, err
		}
	}
	return w.data[off-w.off:][:n], nil
}

// find returns the offset of the first occurrence of a pattern at or after off, or
// -1.
func (w *window) find(pattern []byte, off int64) (int64, error) {
	for off+int64(len(pattern)) <= w.size {
		if _, err := w.at(off, len(pattern)); err != nil {
			return 0, err
		}
		rest := w.data[off-w.off:]
		if i := bytes.Index(rest, pattern); i >= 0 {
			return off + int64(i), nil
		}
		// The pattern may begin in the last bytes.
		off += int64(len(rest) - len(pattern) + 1)
	}
	return -1, nil
}

// fill reads the window at off.
func (w *window) fill(off int64) error {
	data := w.buf[:min(int64(len(w.buf)), w.size-off)]
	w.off, w.data = off, nil
	if n, err := w.f.ReadAt(data, off); n < len(data) {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	w.data = data
	return nil
}
