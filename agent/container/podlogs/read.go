package podlogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Source is the log to read.
type Source struct {
	// Path is the container's log file.
	Path string
	// FollowRestarts makes following continue with the next container's file, so that
	// a restart does not end it.
	FollowRestarts bool
	// Ended, if not nil, is closed when the container has ended and all its
	// output is in the file. Following then ends, unless FollowRestarts is set.
	Ended <-chan struct{}
	// WaitForDir makes following wait for the log's directory if it does not exist
	// yet: before the first start of a container.
	WaitForDir bool
}

// Read writes a log to out. It blocks until the end of the file. When following, it blocks
// until ctx ends (then it returns the cause), the container has ended, its log directory is
// removed or replaced, LimitBytes is reached, or an output fails. Following waits for a
// missing file if its directory exists or WaitForDir is set. Otherwise the error wraps
// fs.ErrNotExist. Following continues in the new file when the log is rotated. As in the
// kubelet, files that were rotated earlier are not read.
//
// Read skips lines in an invalid format, as left by a power cut. damaged is their number.
func Read(ctx context.Context, src Source, o Options, out Output) (damaged int64, err error) {
	if err := o.validate(); err != nil {
		return 0, err
	}
	if src.FollowRestarts {
		src.Ended = nil // its end is not that of the log
	}
	r := &reader{src: src, o: o, selected: o.selectedStreams(), print: newPrinter(&o, out)}
	defer r.close()
	err = r.run(ctx)
	if ferr := r.print.flush(); err == nil {
		err = ferr
	}
	if errors.Is(err, errLimit) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("read log %q: %w", src.Path, err)
	}
	return r.damaged, err
}

// reader is the state of one Read.
type reader struct {
	src      Source
	o        Options
	selected [streams]bool
	print    *printer

	file    *os.File
	lines   *fragments
	from    [streams]int64 // lines that start before it are skipped
	line    header         // of the current line
	skip    bool           // the current line is skipped
	damaged int64
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close() // only read from
		r.file = nil
	}
}

func (r *reader) run(ctx context.Context) error {
	if r.o.Follow {
		return r.follow(ctx)
	}
	if err := r.openFirst(ctx); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.finish()
}

// openFirst opens the first file, at its last lines if Tail is set. Following a file that
// does not exist yet ignores Tail.
func (r *reader) openFirst(ctx context.Context) error {
	f, err := open(r.src.Path)
	if err != nil {
		return err
	}
	r.switchTo(f)
	if r.o.Tail == nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	b, err := tail(ctx, f, info.Size(), *r.o.Tail, r.selected)
	if err != nil {
		return err
	}
	return r.startAt(b)
}

func (r *reader) startAt(b tailStart) error {
	if _, err := r.file.Seek(b.offset, io.SeekStart); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	r.lines, r.from = newFragments(r.file, b.offset), b.from
	return nil
}

// switchTo closes the current file and continues with f, from its start.
func (r *reader) switchTo(f *os.File) {
	r.close()
	r.file, r.lines, r.from = f, newFragments(f, 0), [streams]int64{}
}

// drain prints all complete lines up to the end of the file. It returns ctx's cause when
// ctx ends.
func (r *reader) drain(ctx context.Context) error {
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f, err := r.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.handle(f); err != nil {
			return err
		}
	}
}

// finish prints the unfinished line at the end of a complete file.
func (r *reader) finish() error {
	if f, ok := r.lines.rest(); ok {
		return r.handle(f)
	}
	return nil
}

// handle prints a fragment unless its line is skipped.
func (r *reader) handle(f fragment) error {
	content := f.data
	if f.first {
		h, rest, ok := parseHeader(f.data)
		r.line, content = h, rest
		r.skip = !ok || !r.selected[h.stream] || f.offset < r.from[h.stream]
		if !ok && len(f.data) > 0 {
			r.damaged++
		}
	}
	if r.skip {
		return nil
	}
	return r.print.piece(r.line.stream, r.line.at, content, f.last && !r.line.partial)
}

// openSuccessor opens the file in which the log continues after a rotation or the
// start of the next container. It returns nil if neither happened.
func (r *reader) openSuccessor() (*os.File, error) {
	f, err := open(r.src.Path)
	switch {
	case err == nil:
		if !sameFile(f, r.file) {
			return f, nil
		}
		_ = f.Close() // only read from
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if !r.src.FollowRestarts {
		return nil, nil
	}
	path := nextPath(r.src.Path)
	if path == "" {
		return nil, nil
	}
	f, err = open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed again
	}
	if err == nil {
		r.src.Path = path
	}
	return f, err
}

// sameFile reports whether a and b are the same file. If that is unknown, it
// returns true.
func sameFile(a, b *os.File) bool {
	if b == nil {
		return false
	}
	x, err := a.Stat()
	if err != nil {
		return true
	}
	y, err := b.Stat()
	return err != nil || os.SameFile(x, y)
}

// handleTruncation restarts at the beginning of the file if it was truncated.
func (r *reader) handleTruncation() error {
	info, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if info.Size() >= r.lines.unread() {
		return nil
	}
	if err := r.startAt(tailStart{}); err != nil {
		return err
	}
	return r.print.endUnfinished()
}
