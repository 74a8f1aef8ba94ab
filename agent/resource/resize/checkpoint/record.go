// Package checkpoint owns which pods were allocated something else than their
// spec asked for at first, and what: in memory, and in one small file that
// outlives the agent and a power cut (agent/resource/resize has the document's form).
// A pod that nobody ever asked to resize has no record, so most boards never
// write the file.
package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/resource/resize"
)

// Store keeps allocations by UID. It is safe for concurrent use. What changes
// it blocks on the disk; what reads it never does.
type Store struct {
	path string
	// sync brings a file or a folder to the disk; replaced in tests.
	sync func(*os.File) error

	writing sync.Mutex // held over a change from its file to the memory
	// stale says that the file has what memory has not. writing guards it.
	stale bool

	mu  sync.Mutex
	all map[types.UID]resize.Allocation
}

// Open reads the file at path; none is an empty one. One that is torn, or of
// somebody else, is as good as lost: it is told of in the log, and the next
// change replaces it. Each pod then counts as allocated what the API server,
// or the journal, has of it.
func Open(path string, log *slog.Logger) *Store {
	s := &Store{path: path, sync: (*os.File).Sync, all: map[types.UID]resize.Allocation{}}
	text, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	if err == nil {
		var all map[types.UID]resize.Allocation
		if all, err = resize.Decode(text); err == nil {
			s.all = all
			return s
		}
	}
	s.stale = true
	log.Warn("the record of what resized pods were allocated cannot be read: each counts as allocated what it runs with", "file", path, "error", err)
	return s
}

// readFile reads at most as much as is a document; a link or a pipe is not
// followed, nor waited for.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, resize.MaxDocument+1))
}

// Get is the pod's allocation, if it is on record.
func (s *Store) Get(uid types.UID) (a resize.Allocation, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok = s.all[uid]
	return a, ok
}

// UIDs are the pods on record, in no order.
func (s *Store) UIDs() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := make([]types.UID, 0, len(s.all))
	for uid := range s.all {
		uids = append(uids, uid)
	}
	return uids
}

// Put keeps a pod's allocation, and returns when it is on the disk. What is
// there already costs no write. After an error memory is as before, and the
// file has the old record or the new one.
func (s *Store) Put(uid types.UID, a resize.Allocation) error {
	return s.change(uid, &a)
}

// Drop forgets a pod, and returns when the disk has. After an error it is on
// record until it is dropped again.
func (s *Store) Drop(uid types.UID) error {
	return s.change(uid, nil)
}

func (s *Store) change(uid types.UID, a *resize.Allocation) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	old, known := s.Get(uid)
	if !s.stale && (a == nil && !known || a != nil && known && old.Equal(*a)) || a == nil && !known {
		return nil
	}
	s.mu.Lock()
	next := maps.Clone(s.all)
	s.mu.Unlock()
	delete(next, uid)
	if a != nil {
		next[uid] = *a
	}
	if err := s.write(next); err != nil {
		s.stale = true
		return fmt.Errorf("write the record of allocations %s: %w", s.path, err)
	}
	s.mu.Lock()
	s.all, s.stale = next, false
	s.mu.Unlock()
	return nil
}

// write replaces the file, so that a power cut leaves the old one or the new.
func (s *Store) write(all map[types.UID]resize.Allocation) (err error) {
	text, err := resize.Encode(all)
	if err != nil {
		return err
	}
	folder := filepath.Dir(s.path)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	temporary := s.path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary)
		}
	}()
	if _, err = f.Write(text); err == nil {
		err = s.sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(temporary, s.path); err != nil {
		return err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(s.sync(dir), dir.Close())
}
