package offline

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// ErrFull means that the disk is full or the journal has reached its limit.
// Nothing was changed.
var ErrFull = errors.New("no room in the journal")

// retention is how long an object that is no longer referenced is kept after the
// API server's last answer. Tokens are not kept. A pod that replaces another one often uses the
// same objects, and reads them before it is admitted.
const retention = time.Hour

// batch is one batch of changes in preparation.
type batch struct {
	changes []journal.Change
	// urgent batches are written even beyond the limit.
	urgent bool
	// uid is the pod that changes, if any, and pod its new in-memory state; nil
	// removes it.
	uid types.UID
	pod *podState
	// begun is the number of calls of Forget when the batch was begun.
	begun uint64
	// objects are the new in-memory states of the objects that are written.
	objects map[key]*entry
}

// put adds a value unless the disk already has it.
func (s *Store) put(st *batch, name string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.stored[name]; !ok || old.sum != sha256.Sum256(value) {
		st.changes = append(st.changes, journal.Change{Key: name, Value: value})
	}
}

// putObject adds an object, and its in-memory state even if the disk already has the value.
func (s *Store) putObject(st *batch, k key, r *read) error {
	value, err := encode(r.message)
	if err != nil {
		return fmt.Errorf("encode %s: %w", k, err)
	}
	e := &entry{version: r.version, read: r.at}
	if claim, ok := r.message.(*v1.PersistentVolumeClaim); ok {
		e.volume = claim.Spec.VolumeName
	}
	if st.objects == nil {
		st.objects = make(map[key]*entry)
	}
	st.objects[k] = e
	s.put(st, k.String(), value)
	return nil
}

// remove adds the deletion of all values of a pod. The caller holds mu, as for
// all functions below except commit.
func (s *Store) remove(st *batch, uid types.UID) {
	for _, name := range []string{podKey(uid), endKey(uid)} {
		if _, ok := s.stored[name]; ok {
			st.changes = append(st.changes, journal.Change{Key: name})
		}
	}
}

// commit writes the batch to disk and then applies it in memory. A batch
// without changes on disk is not written. Any other batch also removes unneeded
// values. The caller holds the write token.
func (s *Store) commit(st *batch) error {
	if len(st.changes) > 0 {
		s.mu.Lock()
		s.collectGarbage(st, retention)
		grows, size := s.after(st)
		if grows && size > s.maxBytes {
			s.collectGarbage(st, 0)
			_, size = s.after(st)
		}
		s.mu.Unlock()
		if grows && !st.urgent && size > s.maxBytes {
			return fmt.Errorf("%w: it would grow to %d of at most %d bytes", ErrFull, size, s.maxBytes)
		}
		err := s.journal.Write(st.changes...)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return fmt.Errorf("%w: disk is full: %w", ErrFull, err)
		}
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(st)
	return nil
}

// collectGarbage adds the deletion of forgotten pods, and of objects that are not needed
// and that the API server has not returned for the given time.
func (s *Store) collectGarbage(st *batch, while time.Duration) {
	changed := make(map[string]bool, len(st.changes))
	for i := range st.changes {
		changed[st.changes[i].Key] = true
	}
	for uid := range s.dead {
		if uid != st.uid && !changed[podKey(uid)] && !changed[endKey(uid)] {
			s.remove(st, uid)
		}
	}
	for k, e := range s.objects {
		name := k.String()
		// The references of unread pods are unknown.
		if _, ok := s.stored[name]; !ok || changed[name] || len(s.unread) > 0 || s.isReferenced(k, st) {
			continue
		}
		if k.kind == kindToken || e.read.IsZero() || time.Since(e.read) >= while {
			st.changes = append(st.changes, journal.Change{Key: name})
			e.version = "" // a concurrent read caches it again
		}
	}
}

// isReferenced reports whether a pod that is to run references an object after
// the batch is applied.
func (s *Store) isReferenced(k key, st *batch) bool {
	return s.referred(k, st) && (k.kind != objects.KindVolume || s.isClaimed(k.name, st))
}

func (s *Store) referred(k key, st *batch) bool {
	if h := st.pod; h.runs() && k.refers(h.outline) {
		return true
	}
	for uid, h := range s.pods {
		if uid != st.uid && h.runs() && k.refers(h.outline) {
			return true
		}
	}
	return false
}

// isClaimed reports whether a claim names a volume.
func (s *Store) isClaimed(volume string, st *batch) bool {
	for k, e := range st.objects {
		if k.kind == objects.KindClaim && e.volume == volume {
			return true
		}
	}
	for k, e := range s.objects {
		if k.kind == objects.KindClaim && e.volume == volume && st.objects[k] == nil {
			return true
		}
	}
	return false
}

func (h *podState) runs() bool { return h != nil && h.outline != nil && !h.ended }

// after reports whether the batch adds any value, and returns the total size
// after it is applied.
func (s *Store) after(st *batch) (grows bool, size int64) {
	size = s.size
	for i := range st.changes {
		c := &st.changes[i]
		size -= s.stored[c.Key].size
		if c.Value != nil {
			grows = true
			size += int64(len(c.Key)) + int64(len(c.Value)) + overhead
		}
	}
	return grows, size
}

// apply updates the in-memory state after the batch is on disk.
func (s *Store) apply(st *batch) {
	for i := range st.changes {
		c := &st.changes[i]
		if c.Value != nil {
			delete(s.unread, c.Key)
			s.recordStored(c.Key, storedOf(c.Key, c.Value))
			continue
		}
		s.recordDeleted(c.Key)
		if k, ok := parseKey(c.Key); ok {
			delete(s.objects, k)
		}
	}
	for k, e := range st.objects {
		s.objects[k] = e
		delete(s.recentReads, k)
	}
	switch {
	case st.uid == "":
	case st.pod == nil:
		delete(s.pods, st.uid)
		delete(s.dead, st.uid)
	case s.dead[st.uid] <= st.begun: // else Forget was called since: the next write removes the pod
		s.pods[st.uid] = st.pod
		delete(s.dead, st.uid)
	}
	for uid := range s.dead {
		if !s.has(uid) {
			delete(s.dead, uid)
		}
	}
}

// has reports whether the disk has any value of a pod.
func (s *Store) has(uid types.UID) bool {
	_, admitted := s.stored[podKey(uid)]
	_, ended := s.stored[endKey(uid)]
	return admitted || ended
}
