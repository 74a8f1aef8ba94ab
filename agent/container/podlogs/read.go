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
	// Next goes on with the next container's file when following, so that a
	// restart does not end it.
	Next bool
	// Ended, if not nil, is closed when the container has ended and all its
	// output is in the file: following ends there, unless Next is set.
	Ended <-chan struct{}
	// Wait lets following wait for the log's folder too, where it is not
	// there yet: for the first start of a container.
	Wait bool
}

// Read writes a log to out. It blocks until the end of the file or, when
// following, until ctx ends (with the cause), the container has ended, the
// pod's log folder is removed, or an output fails. A file that is not there
// yet is waited for when following, if its folder is there or Wait is set;
// else the error is fs.ErrNotExist. Following goes on in the new file when
// the log is rotated; files that were rotated away before are not read, as
// the kubelet does not.
//
// Lines that do not have the format, as a power cut leaves them, are left
// out; damaged is how many.
func Read(ctx context.Context, src Source, o Options, out Output) (damaged int64, err error) {
	if err := o.validate(); err != nil {
		return 0, err
	}
	r := &reader{src: src, o: o, wanted: o.wanted(), print: newPrinter(&o, out)}
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
	src    Source
	o      Options
	wanted [streams]bool
	print  *printer

	file    *os.File
	lines   *fragments
	from    [streams]int64 // lines that start before it are left out
	line    header         // of the line that fragments are read of
	skip    bool           // that line is left out
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
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.finish()
}

// begin opens the first file, at its last lines if only those are wanted.
func (r *reader) begin(ctx context.Context) error {
	f, err := open(r.src.Path)
	if err != nil {
		return err
	}
	r.use(f)
	if r.o.Tail == nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("size: %w", err)
	}
	b, err := tail(ctx, f, info.Size(), *r.o.Tail, r.wanted)
	if err != nil {
		return err
	}
	if _, err := f.Seek(b.offset, io.SeekStart); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	r.lines, r.from = newFragments(f, b.offset), b.from
	return nil
}

// use reads from f from now on.
func (r *reader) use(f *os.File) {
	r.close()
	r.file, r.lines, r.from = f, newFragments(f, 0), [streams]int64{}
}

// drain prints all whole lines up to the end of the file.
func (r *reader) drain(ctx context.Context) error {
	for n := 0; ; n++ {
		if n%lookEvery == 0 && ctx.Err() != nil {
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

// finish prints the unfinished line at the end of a file that is done.
func (r *reader) finish() error {
	if f, ok := r.lines.rest(); ok {
		return r.handle(f)
	}
	return nil
}

func (r *reader) handle(f fragment) error {
	content := f.data
	if f.first {
		h, rest, ok := parseHeader(f.data)
		r.line, content = h, rest
		r.skip = !ok || !r.wanted[h.stream] || f.offset < r.from[h.stream]
		if !ok && len(f.data) > 0 {
			r.damaged++
		}
	}
	if r.skip {
		return nil
	}
	return r.print.piece(r.line.stream, r.line.at, content, f.last && !r.line.partial)
}

// replaced opens what the log goes on in when the file was rotated away or
// the next container has started; nil if neither.
func (r *reader) replaced() (*os.File, error) {
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
	if !r.src.Next {
		return nil, nil
	}
	path := r.nextPath()
	if path == "" {
		return nil, nil
	}
	f, err = open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // gone again
	}
	if err == nil {
		r.src.Path = path
	}
	return f, err
}

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

// truncated begins anew in a file that was cut and written again.
func (r *reader) truncated() error {
	info, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("size: %w", err)
	}
	if info.Size() >= r.lines.unread() {
		return nil
	}
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	r.lines, r.from = newFragments(r.file, 0), [streams]int64{}
	return r.print.forget()
}
