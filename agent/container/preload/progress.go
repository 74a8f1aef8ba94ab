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
	lastLogged time.Time
}

// advance logs the progress if due. offset is the position in the current blob.
func (p *progress) advance(offset int64) {
	if now := time.Now(); now.Sub(p.lastLogged) >= progressEvery {
		p.lastLogged = now
		p.log.Info("importing image archive", "archive", p.archive, "bytes", p.before+offset, "totalBytes", p.total)
	}
}

// tracked is a reader of a blob that records its position and its last error other than
// io.EOF.
type tracked struct {
	r        io.Reader
	progress *progress
	offset   int64
	err      error // nil if a failed import was not the reader's fault
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

type seekable struct {
	*tracked
	s io.Seeker
}

func (s *seekable) Seek(offset int64, whence int) (int64, error) {
	at, err := s.s.Seek(offset, whence)
	s.offset = at
	return at, err
}
