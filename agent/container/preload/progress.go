package preload

import (
	"errors"
	"io"
	"log/slog"
	"time"
)

// progressEvery is the period of progress messages during a long import.
const progressEvery = 15 * time.Second

// progress counts the bytes of an import.
type progress struct {
	log        *slog.Logger
	archive    string
	total      int64
	before     int64 // bytes of the finished blobs
	now        int64 // bytes of the current one
	lastLogged time.Time
}

// finish counts a whole blob, whether it was read or not.
func (p *progress) finish(size int64) { p.before, p.now = p.before+size, 0 }

// advance sets the position in the current blob, and logs the progress if due.
func (p *progress) advance(offset int64) {
	p.now = offset
	if now := time.Now(); now.Sub(p.lastLogged) >= progressEvery {
		p.lastLogged = now
		p.log.Info("importing image archive", "archive", p.archive, "bytes", p.before+p.now, "totalBytes", p.total)
	}
}

// track returns a reader that counts what is read of a blob. It is an
// io.Seeker if r is one.
func (p *progress) track(r io.Reader) io.Reader {
	t := &tracked{r: r, progress: p}
	if s, ok := r.(io.Seeker); ok {
		return &seekable{tracked: t, s: s}
	}
	return t
}

// tracked is a reader that records its position and its error.
type tracked struct {
	r        io.Reader
	progress *progress
	offset   int64
	err      error
}

func (t *tracked) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.offset += int64(n)
	t.progress.advance(t.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

// seekable is a tracked reader that can seek.
type seekable struct {
	*tracked
	s io.Seeker
}

func (s *seekable) Seek(offset int64, whence int) (int64, error) {
	at, err := s.s.Seek(offset, whence)
	s.offset = at
	return at, err
}

// readErrorOf returns the error of a reader made by track, or nil if a failed
// import was not the reader's fault.
func readErrorOf(r io.Reader) error {
	switch r := r.(type) {
	case *tracked:
		return r.err
	case *seekable:
		return r.err
	}
	return nil
}
