package podlogs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// tailStart is where to start in a file to read only its last lines: at
// offset, skipping each stream's lines that start before from[stream]. The
// streams differ because the pieces of a long line may lie between lines of
// the other stream.
type tailStart struct {
	offset int64
	from   [streams]int64
}

// maxExtraScan limits, in bytes, the search for the first pieces of long lines
// after enough lines were found. A longer line is shown from its middle.
const maxExtraScan = 1 << 20

// checkEvery is how many lines are read between two checks of the context.
const checkEvery = 1024

// tail finds the start of the last n lines of the streams in only, both together. It reads
// backwards in constant memory and counts the pieces of a line as one line. The lines can be
// arbitrarily long, so it returns ctx's cause when ctx ends.
func tail(ctx context.Context, f io.ReaderAt, size, n int64, only [streams]bool) (tailStart, error) {
	b := tailStart{offset: size}
	var inLine, settled [streams]bool
	for s := range b.from {
		b.from[s] = size
		settled[s] = !only[s]
	}
	w := backward{f: f, end: size}
	count, enough := int64(0), size
	for scanned := 0; w.end > 0; scanned++ {
		if scanned%checkEvery == 0 && ctx.Err() != nil {
			return b, context.Cause(ctx)
		}
		if count >= n {
			if resolved(inLine, settled) || enough-w.end > maxExtraScan {
				break
			}
		} else {
			enough = w.end
		}
		at, head, err := w.previous()
		if err != nil {
			return b, fmt.Errorf("search for last lines: %w", err)
		}
		h, _, ok := parseHeader(head)
		if !ok || settled[h.stream] {
			continue
		}
		if !h.partial || !inLine[h.stream] {
			// The end of a line, or the last piece of an unfinished one.
			if count == n {
				settled[h.stream] = true
				continue
			}
			count++
			inLine[h.stream] = true
		}
		b.from[h.stream], b.offset = at, at
	}
	return b, nil
}

// resolved reports whether the first piece of every counted line was found.
func resolved(inLine, settled [streams]bool) bool {
	for s := range inLine {
		if inLine[s] && !settled[s] {
			return false
		}
	}
	return true
}

// backward iterates over the lines of a file from its end to its start.
type backward struct {
	f    io.ReaderAt
	end  int64 // start of the part that was visited
	buf  []byte
	base int64 // offset of the block in buf
	head [maxHeader]byte
}

// previous returns the offset and the first bytes of the line before end, behind zero bytes
// as parseHeader skips them. The bytes are valid until the next call.
func (w *backward) previous() (int64, []byte, error) {
	start := w.end - 1 // skips the line's own newline
	for start > 0 {
		if start <= w.base || start > w.base+int64(len(w.buf)) {
			if err := w.load(start); err != nil {
				return 0, nil, err
			}
		}
		i := bytes.LastIndexByte(w.buf[:start-w.base], '\n')
		if i >= 0 {
			start = w.base + int64(i) + 1
			break
		}
		start = w.base
	}
	end := w.end
	w.end = start
	for from := start; ; {
		head, err := w.read(from, int(min(end-from, maxHeader)))
		zeros := len(head) - len(bytes.TrimLeft(head, "\x00"))
		if err != nil || zeros == 0 || from-start > bufferSize {
			return start, head, err
		}
		from += int64(zeros)
	}
}

// read returns n bytes from offset at, fewer at the end of the file. n is at most maxHeader.
func (w *backward) read(at int64, n int) ([]byte, error) {
	if from := at - w.base; from >= 0 && from+int64(n) <= int64(len(w.buf)) {
		return w.buf[from : from+int64(n)], nil
	}
	got, err := w.f.ReadAt(w.head[:n], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return w.head[:got], nil
}

// load fills the block that ends at offset end.
func (w *backward) load(end int64) error {
	w.base = max(end-bufferSize, 0)
	if w.buf == nil {
		w.buf = make([]byte, 0, bufferSize)
	}
	w.buf = w.buf[:end-w.base]
	n, err := w.f.ReadAt(w.buf, w.base)
	if n < len(w.buf) {
		clear(w.buf[n:]) // the file was truncated meanwhile
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
