package podlogs

import (
	"bytes"
	"io"
)

// bufferSize is the size in bytes of the buffer for one file. CRI runtimes
// split lines at 16 KiB, so that a whole line nearly always fits.
const bufferSize = 32 << 10

// fragment is a whole line of the file without its newline, or a part of a
// line that is longer than the buffer.
type fragment struct {
	data   []byte // valid until the next call of next
	offset int64  // of the line's first byte in the file
	first  bool   // it has the beginning of the line
	last   bool   // it has the end of the line
}

// fragments splits its input into lines in constant memory. After io.EOF, next may be
// called again, for a file that grows.
type fragments struct {
	r          io.Reader
	buf        []byte
	start, end int
	line       int64 // offset of the line that begins at or before start
	pos        int64 // offset of start
	mid        bool  // a part of the line was returned already
}

func newFragments(r io.Reader, offset int64) *fragments {
	return &fragments{r: r, buf: make([]byte, bufferSize), line: offset, pos: offset}
}

// next returns the next fragment: a line, or a full buffer without a newline. It returns
// io.EOF if there is neither.
func (f *fragments) next() (fragment, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(f.buf[f.start+scanned:f.end], '\n'); i >= 0 {
			return f.take(scanned+i, 1), nil
		}
		scanned = f.end - f.start
		if scanned == len(f.buf) {
			return f.take(scanned, 0), nil
		}
		if f.start > 0 {
			copy(f.buf, f.buf[f.start:f.end])
			f.start, f.end = 0, scanned
		}
		n, err := f.r.Read(f.buf[f.end:])
		f.end += max(n, 0)
		if n > 0 {
			continue
		}
		if err == nil {
			err = io.ErrNoProgress
		}
		return fragment{}, err
	}
}

// rest returns the unfinished line at the end of the file, if there is one.
func (f *fragments) rest() (fragment, bool) {
	n := f.end - f.start
	if n == 0 {
		return fragment{}, false
	}
	return f.take(n, 0), true
}

// take returns n bytes and skips the newline after them, if any.
func (f *fragments) take(n, newline int) fragment {
	out := fragment{data: f.buf[f.start : f.start+n], offset: f.line, first: !f.mid, last: newline > 0}
	f.start += n + newline
	f.pos += int64(n + newline)
	f.mid = newline == 0
	if newline > 0 {
		f.line = f.pos
	}
	return out
}

// unread returns the file offset of the first byte that was not read.
func (f *fragments) unread() int64 { return f.pos + int64(f.end-f.start) }
