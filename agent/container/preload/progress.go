package preload

import (
	"errors"
	"io"
	"log/slog"
	"time"
)

// progressEvery is how often a long import says how far it is.
const progressEvery = 15 * time.Second

// progress counts the bytes of an import.
type progress struct {
	log     *slog.Logger
	archive string
	total   int64
	before  int64 // of the blobs that are finished
	now     int64 // of the current one
	said    time.Time
}

// finish counts a blob in, read or not.
func (p *progress) finish(size int64) { p.before, p.now = p.before+size, 0 }

func (p *progress) at(offset int64) {
	p.now = offset
	if now := time.Now(); now.Sub(p.said) >= progressEvery {
		p.said = now
		p.log.Info("image archive is being imported", "archive", p.archive, "bytes", p.before+p.now, "of", p.total)
	}
}

// follow watches what is read of a blob. What can seek still can.
func (p *progress) follow(r io.Reader) io.Reader {
	t := &tracked{r: r, progress: p}
	if s, ok := r.(io.Seeker); ok {
		return &seekable{tracked: t, s: s}
	}
	return t
}

// tracked is a reader that remembers how it failed.
type tracked struct {
	r        io.Reader
	progress *progress
	offset   int64
	err      error
}

func (t *tracked) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.offset += int64(n)
	t.progress.at(t.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

type seekable struct {
	*tracked
	s io.Seeker
}

func (s *seekable) Seek(offset int64, whence int) (int64, error) {
	at, err := s.s.Seek(offset, whence)
	s.offset = at
	return at, err
}

// failureOf is how a reader failed, or nil: then the other side did.
func failureOf(r io.Reader) error {
	switch r := r.(type) {
	case *tracked:
		return r.err
	case *seekable:
		return r.err
	}
	return nil
}
