package offline

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// through asks the server by next, keeps what it answers, and answers from the
// journal where it does not.
func through[T any, P interface {
	*T
	message
}](ctx context.Context, s *Store, k key, next func(context.Context) (P, error)) (P, error) {
	if s.config.Ask != nil && !s.config.Ask() {
		kept := P(new(T))
		if s.knows(k) && s.recall(k, kept) == nil {
			return kept, nil
		}
	}
	limited, cancel, known := s.limit(ctx, k)
	answer, err := next(limited)
	cancel()
	s.heard(err)
	switch {
	case err == nil:
		s.note(ctx, k, answer)
		return answer, nil
	case apierrors.IsNotFound(err):
		s.gone(k)
		return nil, err
	case !known || ctx.Err() != nil:
		return nil, err
	}
	kept := P(new(T))
	if lost := s.recall(k, kept); lost != nil {
		return nil, fmt.Errorf("%w, and not from the journal: %w", err, lost)
	}
	s.missed(err)
	return kept, nil
}

// knows says whether the journal can answer.
func (s *Store) knows(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[k]
	return e != nil && !e.gone
}

// limit answers for how long the server may be asked, and whether the journal
// can answer.
func (s *Store) limit(ctx context.Context, k key) (context.Context, context.CancelFunc, bool) {
	s.mu.Lock()
	e := s.objects[k]
	known := e != nil && !e.gone
	var wait time.Duration
	if known {
		wait = s.wait(e)
	}
	s.mu.Unlock()
	if !known {
		return ctx, func() {}, false
	}
	limited, cancel := context.WithTimeoutCause(ctx, wait, errPatience)
	return limited, cancel, true
}

// recall reads an object from the journal.
func (s *Store) recall(k key, into message) error {
	value, ok, err := s.value(k.String())
	if err != nil {
		return err
	}
	if !ok {
		return errPatience // it was dropped meanwhile
	}
	if err := decode(value, into); err != nil {
		return fmt.Errorf("decode %s: %w", k, err)
	}
	if o, is := into.(metav1.Object); is && k.kind != kindBundle && (o.GetNamespace() != k.namespace || o.GetName() != k.name) {
		return fmt.Errorf("decode %s: it is %s/%s", k, o.GetNamespace(), o.GetName())
	}
	return nil
}

// gone notes that the server has no such object. What the journal has of it
// is no answer any more while this process lasts; it stays for as long as a
// pod refers to it, which needs it for a start without network.
func (s *Store) gone(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen.reads, k)
	if e := s.objects[k]; e != nil {
		e.gone = true
	}
}

// note keeps what the server answered: on the disk if a pod that was admitted
// refers to it, else in memory.
func (s *Store) note(ctx context.Context, k key, m message) {
	if !k.valid() {
		return
	}
	now, version := time.Now(), versionOf(m)
	s.mu.Lock()
	if e := s.objects[k]; e != nil {
		e.read, e.gone, e.tried = now, false, time.Time{}
		if version != "" && version == e.version {
			s.mu.Unlock()
			return
		}
	}
	r := &read{message: essential(m), version: version, at: now}
	if !s.wanted(k) {
		s.seen.add(k, r)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.tell(k, s.keepRead(ctx, k, r))
}

// keepRead writes an object down to the disk.
func (s *Store) keepRead(ctx context.Context, k key, r *read) error {
	if err := s.acquire(ctx); err != nil {
		return nil // who asked has gone; it is kept the next time
	}
	defer s.release()
	st := &step{}
	if err := s.putObject(st, k, r); err != nil {
		return err
	}
	return s.commit(st)
}

// tell logs once that objects cannot be kept, and once that they can.
func (s *Store) tell(k key, err error) {
	s.mu.Lock()
	changed := s.failing != (err != nil)
	s.failing = err != nil
	s.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		s.config.Log.Warn("objects that pods need for a start without network cannot be kept", "object", k.String(), "error", err)
	default:
		s.config.Log.Info("objects that pods need for a start without network can be kept again")
	}
}

// versionOf answers what is another for each content of an object, or "".
func versionOf(m message) string {
	o, ok := m.(metav1.Object)
	if !ok || o.GetResourceVersion() == "" {
		return ""
	}
	return string(o.GetUID()) + "/" + o.GetResourceVersion()
}
