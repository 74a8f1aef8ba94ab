// Package checkpoint stores the allocations of pods that were resized: in memory, and
// in one small file that survives a restart of the agent and a power cut
// (agent/resource/resize defines the document). A pod that was never resized has no
// record, so most nodes never write the file.
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

// Store holds allocations by UID. It is safe for concurrent use. Put and Drop block
// on the disk; the other methods do not.
type Store struct {
	path string
	// sync flushes a file or directory to disk. Tests replace it.
	sync func(*os.File) error

	writing sync.Mutex // held while a change is written to the file and to memory
	// dirty means that the file differs from memory. writing guards it.
	dirty bool

	mu  sync.Mutex
	all map[types.UID]resize.Allocation
}

// Open reads the file at path. A missing file is an empty one. Open logs a corrupt or
// foreign file, and the next change replaces it. The allocation of each pod is then
// taken from the API server or the journal.
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
	s.dirty = true
	log.Warn("cannot read allocation checkpoint, using pod specs", "file", path, "error", err)
	return s
}

// readFile reads at most one byte more than a document may have. It follows no
// symlink and does not block on a FIFO.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, resize.MaxDocument+1))
}

// Get returns the pod's allocation, if it is stored.
func (s *Store) Get(uid types.UID) (a resize.Allocation, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok = s.all[uid]
	return a, ok
}

// UIDs returns the UIDs of the stored pods, in no order.
func (s *Store) UIDs() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := make([]types.UID, 0, len(s.all))
	for uid := range s.all {
		uids = append(uids, uid)
	}
	return uids
}

// Put stores a pod's allocation, and returns when it is on disk. An unchanged
// allocation costs no write. After an error the memory is unchanged, and the file has
// the old record or the new one.
func (s *Store) Put(uid types.UID, a resize.Allocation) error {
	return s.change(uid, &a)
}

// Drop removes a pod, and returns when the change is on disk. After an error the
// record remains until Drop succeeds.
func (s *Store) Drop(uid types.UID) error {
	return s.change(uid, nil)
}

func (s *Store) change(uid types.UID, a *resize.Allocation) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	old, known := s.Get(uid)
	if !s.dirty && (a == nil && !known || a != nil && known && old.Equal(*a)) || a == nil && !known {
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
		s.dirty = true
		return fmt.Errorf("write allocation checkpoint %s: %w", s.path, err)
	}
	s.mu.Lock()
	s.all, s.dirty = next, false
	s.mu.Unlock()
	return nil
}

// write replaces the file atomically, so that a power cut leaves the old one or the
// new one.
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
