package offline

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readThrough reads an object from the API server with next and stores the answer.
// After any error but NotFound, it reads the object from the journal. T is the type of
// newMessage, or message.
func readThrough[T message](ctx context.Context, s *Store, k key, next func(context.Context) (T, error)) (T, error) {
	var none T
	fromJournal := func() (T, error) {
		kept, _ := newMessage(k.kind).(T)
		return kept, s.readJournal(k, kept)
	}
	if s.config.MayRead != nil && !s.config.MayRead() && s.knows(k) {
		if kept, err := fromJournal(); err == nil {
			return kept, nil
		}
	}
	limited, cancel, known := s.limit(ctx, k)
	answer, err := next(limited)
	cancel()
	s.recordResponse(err)
	switch {
	case err == nil:
		s.storeAnswer(ctx, k, answer)
		return answer, nil
	case apierrors.IsNotFound(err):
		s.recordNotFound(k)
		return none, err
	case !known || ctx.Err() != nil:
		return none, err
	}
	kept, lost := fromJournal()
	if lost != nil {
		return none, fmt.Errorf("%w; read from journal: %w", err, lost)
	}
	s.recordFallback(err)
	return kept, nil
}

// knows reports whether the journal has the object.
func (s *Store) knows(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[k]
	return e != nil && !e.notFound
}

// limit returns a context with the timeout for the API server, and whether the
// journal has the object.
func (s *Store) limit(ctx context.Context, k key) (context.Context, context.CancelFunc, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[k]
	if e == nil || e.notFound {
		return ctx, func() {}, false
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.readTimeout(e), errTimeout)
	return limited, cancel, true
}

// readJournal reads an object from the journal.
func (s *Store) readJournal(k key, into message) error {
	value, ok, err := s.value(k.String())
	if err != nil {
		return err
	}
	if !ok {
		return errTimeout // it was dropped meanwhile
	}
	if err := decode(value, into); err != nil {
		return fmt.Errorf("decode %s: %w", k, err)
	}
	if o, is := into.(metav1.Object); is && k.kind != kindBundle && (o.GetNamespace() != k.namespace || o.GetName() != k.name) {
		return fmt.Errorf("decode %s: unexpected object %s/%s", k, o.GetNamespace(), o.GetName())
	}
	return nil
}

// recordNotFound records that the API server does not have an object. For the rest of the
// process lifetime, or until the API server returns the object, the journal's copy is
// not returned. It stays in the journal while a pod references it, since a start
// without network needs it.
func (s *Store) recordNotFound(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recentReads, k)
	if e := s.objects[k]; e != nil {
		e.notFound = true
	}
}

// storeAnswer stores an answer of the API server: on disk if an admitted pod
// references it, else in memory.
func (s *Store) storeAnswer(ctx context.Context, k key, m message) {
	if !k.valid() {
		return
	}
	now, version := time.Now(), versionOf(m)
	s.mu.Lock()
	if e := s.objects[k]; e != nil {
		e.read, e.notFound, e.tried = now, false, time.Time{}
		if version != "" && version == e.version {
			s.mu.Unlock()
			return
		}
	}
	r := &read{message: essential(m), version: version, at: now}
	if !s.isReferenced(k, &batch{}) {
		s.recentReads.add(k, r)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.logWriteState(k, s.writeAnswer(ctx, k, r))
}

// writeAnswer writes an object to disk, unless the last pod that references it was forgotten
// meanwhile.
func (s *Store) writeAnswer(ctx context.Context, k key, r *read) error {
	if err := s.acquire(ctx); err != nil {
		return nil // the caller gave up; the next read stores it
	}
	defer s.release()
	st := &batch{}
	s.mu.Lock()
	referenced := s.isReferenced(k, st)
	if !referenced {
		s.recentReads.add(k, r)
	}
	s.mu.Unlock()
	if !referenced {
		return nil
	}
	if err := s.putObject(st, k, r); err != nil {
		return err
	}
	return s.commit(st)
}

// logWriteState logs once that objects cannot be stored, and once that they can again.
func (s *Store) logWriteState(k key, err error) {
	s.mu.Lock()
	changed := s.failing != (err != nil)
	s.failing = err != nil
	s.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		s.config.Log.Warn("cannot store object for start without network", "object", k.String(), "error", err)
	default:
		s.config.Log.Info("resumed storing objects for start without network")
	}
}

// versionOf returns the object's UID and resource version, or "" without the latter.
func versionOf(m message) string {
	o, ok := m.(metav1.Object)
	if !ok || o.GetResourceVersion() == "" {
		return ""
	}
	return string(o.GetUID()) + "/" + o.GetResourceVersion()
}

// maxSeen bounds the cached objects that no admitted pod references.
const maxSeen = 256

// read is an answer of the API server. Its message is shared with the reader.
type read struct {
	message message
	version string
	at      time.Time
}

// recentReads caches the most recent objects that were read for pods which are not
// admitted yet. It is bounded by number and by age, since some pods are never
// admitted.
type recentReads map[key]*read

func (s recentReads) add(k key, r *read) {
	if _, known := s[k]; !known {
		s.prune(r.at)
	}
	s[k] = r
}

// prune makes room for one more object.
func (s recentReads) prune(now time.Time) {
	var oldest key
	for k, r := range s {
		if now.Sub(r.at) >= retention {
			delete(s, k)
			continue
		}
		if first := s[oldest]; first == nil || r.at.Before(first.at) {
			oldest = k
		}
	}
	if len(s) >= maxSeen {
		delete(s, oldest)
	}
}
