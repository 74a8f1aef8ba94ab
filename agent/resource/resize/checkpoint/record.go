// Package checkpoint stores the allocations of pods that were resized: in memory, and
// in one small file that survives a restart of the agent and a power cut
// (agent/resource/resize defines the document). A pod that was never resized has no
// record, so most nodes never write the file.
package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// Store holds allocations by UID. It is safe for concurrent use. Put and Drop block
// on the disk; the other methods do not.
type Store struct {
	path string
	// replace is atomicfile.Write. Tests replace it.
	replace func(path string, data []byte, mode fs.FileMode) error

	writing sync.Mutex // held while a change is written; taken before mu
	// dirty means that the file differs from memory. writing guards it.
	dirty bool

	mu  sync.Mutex
	all map[types.UID]resize.Allocation
}

// Open reads the file at path. A missing file is an empty one. Open logs a corrupt or
// foreign file, and the next change replaces it. The allocation of each pod is then
// taken from the status in the API server, or else from the pod's spec.
func Open(path string, log *slog.Logger) *Store {
	s := &Store{path: path, replace: atomicfile.Write, all: map[types.UID]resize.Allocation{}}
	text, err := atomicfile.Read(path, resize.MaxDocument+1)
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
	return slices.Collect(maps.Keys(s.all))
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
func (s *Store) write(all map[types.UID]resize.Allocation) error {
	text, err := resize.Encode(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o750); err != nil {
		return err
	}
	return s.replace(s.path, text, 0o600)
}
