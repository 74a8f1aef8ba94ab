package offline

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// ErrFull says that the disk is full, or the journal has all that it may have.
// Nothing was changed.
var ErrFull = errors.New("there is no room for it in the journal")

// linger is how long an object is kept that nothing refers to any more, after
// the server answered it last: the pod that takes another's place often uses
// the same, and has read it before it is admitted.
const linger = time.Hour

// step is one batch in the making.
type step struct {
	changes []journal.Change
	// urgent is written also beyond the limit.
	urgent bool
	// uid is the pod that changes, if any does, and pod what memory is to
	// have of it; nil is nothing.
	uid types.UID
	pod *held
	// objects are what memory is to have of what is put.
	objects map[key]*entry
}

// put adds a value unless the disk has it.
func (s *Store) put(st *step, name string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.stored[name]; !ok || old.sum != sha256.Sum256(value) {
		st.changes = append(st.changes, journal.Change{Key: name, Value: value})
	}
}

// putObject adds an object.
func (s *Store) putObject(st *step, k key, r *read) error {
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

// remove adds the deletion of what there is of a pod. The caller holds mu, as
// it does for all below but commit.
func (s *Store) remove(st *step, uid types.UID) {
	for _, name := range []string{podKey(uid), endKey(uid)} {
		if _, ok := s.stored[name]; ok {
			st.changes = append(st.changes, journal.Change{Key: name})
		}
	}
}

// commit writes the step down to the disk and lets it take effect. A step
// that changes nothing on the disk is not written; one that does takes away
// what nobody needs any more. The caller has the turn.
func (s *Store) commit(st *step) error {
	if len(st.changes) > 0 {
		s.mu.Lock()
		s.clean(st, linger)
		grows, size := s.after(st)
		if grows && size > s.config.MaxBytes {
			s.clean(st, 0)
			_, size = s.after(st)
		}
		s.mu.Unlock()
		if grows && !st.urgent && size > s.config.MaxBytes {
			return fmt.Errorf("%w: it would have %d bytes, and may have %d", ErrFull, size, s.config.MaxBytes)
		}
		err := s.journal.Write(st.changes...)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return fmt.Errorf("%w, the disk is full: %w", ErrFull, err)
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

// clean adds the deletion of forgotten pods, and of objects that nothing needs
// and that the server did not answer for a while.
func (s *Store) clean(st *step, while time.Duration) {
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
		if _, ok := s.stored[name]; !ok || changed[name] || s.needed(k, st) {
			continue
		}
		if k.kind == kindToken || e.read.IsZero() || time.Since(e.read) >= while {
			st.changes = append(st.changes, journal.Change{Key: name})
			e.version = "" // who reads it meanwhile has it remembered anew
		}
	}
}

// needed says whether a pod that is to run refers to an object, once the step
// is made.
func (s *Store) needed(k key, st *step) bool {
	if len(s.unread) > 0 {
		return true // nobody knows what those pods refer to
	}
	return s.used(k, st)
}

// wanted says whether a pod that is to run refers to an object.
func (s *Store) wanted(k key) bool { return s.used(k, &step{}) }

func (s *Store) used(k key, st *step) bool {
	return s.referred(k, st) && (k.kind != objects.KindVolume || s.claimed(k.name, st))
}

func (s *Store) referred(k key, st *step) bool {
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

// claimed says whether a claim names a volume.
func (s *Store) claimed(volume string, st *step) bool {
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

func (h *held) runs() bool { return h != nil && h.outline != nil && !h.ended }

// after says whether the step adds anything, and how much there is once it is
// made.
func (s *Store) after(st *step) (grows bool, size int64) {
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

// apply lets memory have what the disk has now.
func (s *Store) apply(st *step) {
	for i := range st.changes {
		c := &st.changes[i]
		if c.Value != nil {
			delete(s.unread, c.Key)
			s.keep(c.Key, storedOf(c.Key, c.Value))
			continue
		}
		s.drop(c.Key)
		if k, ok := parseKey(c.Key); ok {
			delete(s.objects, k)
		}
	}
	for k, e := range st.objects {
		s.objects[k] = e
		delete(s.seen.reads, k)
	}
	if st.uid != "" {
		if st.pod == nil {
			delete(s.pods, st.uid)
		} else {
			s.pods[st.uid] = st.pod
		}
		delete(s.dead, st.uid)
	}
	for uid := range s.dead {
		if !s.has(uid) {
			delete(s.dead, uid)
		}
	}
}

// has says whether the disk has anything of a pod's own.
func (s *Store) has(uid types.UID) bool {
	_, admitted := s.stored[podKey(uid)]
	_, ended := s.stored[endKey(uid)]
	return admitted || ended
}

// uids are all pods of which the disk has anything of their own.
func (s *Store) uids() map[types.UID]bool {
	all := make(map[types.UID]bool)
	for name := range s.stored {
		for _, prefix := range []string{prefixPod, prefixEnd} {
			if uid, ok := strings.CutPrefix(name, prefix); ok && !s.dead[types.UID(uid)] {
				all[types.UID(uid)] = true
			}
		}
	}
	return all
}
