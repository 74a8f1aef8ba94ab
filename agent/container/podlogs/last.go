package podlogs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// lastWindow is how many bytes at the end of a file Last reads. That is room
// for three pieces of the maximum size that CRI runtimes write.
const lastWindow = 64 << 10

// Last returns the end of a log: at most the given number of lines and bytes, of both
// streams, without timestamps. It reads at most the last 64 KiB of the file. If these hold
// fewer lines, it returns fewer. If they hold no valid line, it returns their end as it is,
// without leading zero bytes. Invalid UTF-8 is replaced by U+FFFD after the truncation to
// limit bytes, so the result may be longer. If ctx ends, Last returns its cause.
func Last(ctx context.Context, path string, lines int64, limit int) (string, error) {
	text, err := last(ctx, path, lines, limit)
	if err != nil {
		return "", fmt.Errorf("read end of log %q: %w", path, err)
	}
	return strings.ToValidUTF8(string(text), "\uFFFD"), nil
}

func last(ctx context.Context, path string, lines int64, limit int) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat: %w", err)
	}
	size := min(info.Size(), lastWindow)
	window := io.NewSectionReader(f, info.Size()-size, size)

	out := &tailBuffer{limit: limit}
	o := Options{Tail: &lines}
	r := &reader{o: o, selected: o.selectedStreams(), print: newPrinter(&o, Output{Stdout: out})}
	b, err := tail(ctx, window, size, lines, r.selected)
	if err != nil {
		return nil, err
	}
	r.lines, r.from = newFragments(io.NewSectionReader(window, b.offset, size-b.offset), b.offset), b.from
	if err := r.drain(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(r.finish(), r.print.flush()); err != nil {
		return nil, err
	}
	if len(out.kept) > 0 || size == info.Size() {
		return out.kept, nil
	}
	return withinLine(window, size, limit)
}

// withinLine returns the last bytes of a window that holds no valid line.
// It omits leading zero bytes, which a power cut leaves.
func withinLine(window io.ReaderAt, size int64, limit int) ([]byte, error) {
	n := min(size, int64(limit))
	end := make([]byte, n)
	got, err := window.ReadAt(end, size-n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return bytes.TrimLeft(end[:got], "\x00"), nil
}

// tailBuffer keeps the last bytes that are written to it.
type tailBuffer struct {
	limit int
	kept  []byte
}

func (e *tailBuffer) Write(b []byte) (int, error) {
	n := len(b)
	b = b[max(0, n-e.limit):]
	if over := len(e.kept) + len(b) - e.limit; over > 0 {
		e.kept = append(e.kept[:0], e.kept[over:]...)
	}
	e.kept = append(e.kept, b...)
	return n, nil
}
