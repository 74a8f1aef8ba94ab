package offline

import (
	"crypto/sha256"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// overhead is the size on disk that a value takes in addition to its key and
// content, in bytes, rounded up.
const overhead = 160

type sum [sha256.Size]byte

func storedOf(name string, value []byte) stored {
	return stored{size: int64(len(name)) + int64(len(value)) + overhead, sum: sha256.Sum256(value)}
}

// load reads the whole journal into memory.
func (s *Store) load() error {
	for _, name := range s.journal.Keys("") {
		value, ok, err := s.journal.Read(name)
		if errors.Is(err, journal.ErrDamaged) {
			s.config.Log.Warn("skip damaged value in pod journal", "key", name, "error", err)
			s.damaged(name)
			continue
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		s.recordStored(name, storedOf(name, value))
		if err := s.index(name, value); err != nil {
			// These two determine which other objects are needed.
			if k, _ := parseKey(name); k.kind == objects.KindClaim || strings.HasPrefix(name, prefixPod) {
				s.unread[name] = true
			}
			s.config.Log.Warn("cannot use value in pod journal", "key", name, "error", err)
		}
	}
	return nil
}

// damaged records the key of a lost value. The value counts as different from any other.
func (s *Store) damaged(name string) {
	s.recordStored(name, stored{size: int64(len(name)) + overhead})
	if uid, ok := strings.CutPrefix(name, prefixEnd); ok {
		// The terminal status is lost, but it is known that the pod ended.
		s.podState(types.UID(uid)).ended = true
	}
	if k, ok := parseKey(name); ok {
		s.objects[k] = &entry{notFound: true}
	}
}

// recordStored records a value on disk.
func (s *Store) recordStored(name string, now stored) {
	s.size += now.size - s.stored[name].size
	s.stored[name] = now
}

// recordDeleted records that a value is no longer on disk.
func (s *Store) recordDeleted(name string) {
	s.size -= s.stored[name].size
	delete(s.stored, name)
	delete(s.unread, name)
}

// podState returns the in-memory state of a pod, and creates it if needed.
func (s *Store) podState(uid types.UID) *podState {
	h := s.pods[uid]
	if h == nil {
		h = &podState{}
		s.pods[uid] = h
	}
	return h
}

// index indexes a value. It decodes only values that are needed immediately.
func (s *Store) index(name string, value []byte) error {
	if uid, ok := strings.CutPrefix(name, prefixEnd); ok {
		s.podState(types.UID(uid)).ended = true
		return decode(value, &v1.PodStatus{})
	}
	if uid, ok := strings.CutPrefix(name, prefixPod); ok {
		p, err := decodePod(types.UID(uid), value)
		if err != nil {
			return err
		}
		h := s.podState(p.UID)
		h.outline, h.started = outline(p), p.Status.StartTime
		return nil
	}
	k, ok := parseKey(name)
	if !ok {
		return errFormat
	}
	e := &entry{}
	s.objects[k] = e
	if k.kind == objects.KindClaim {
		claim := &v1.PersistentVolumeClaim{}
		if err := decode(value, claim); err != nil {
			return err
		}
		e.volume = claim.Spec.VolumeName
	}
	return nil
}
