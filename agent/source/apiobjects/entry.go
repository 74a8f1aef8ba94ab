package apiobjects

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// entry is one ConfigMap or Secret that pods reference. All but the first two
// fields are guarded by Objects.mu.
type entry struct {
	key   key
	ready chan struct{} // closed at the first answer or error, or when it is dropped

	settled    bool           // ready is closed
	known      bool           // the API server has answered
	object     objects.Object // *v1.ConfigMap or *v1.Secret, nil if it does not exist
	err        error          // of the last attempt, while known is false
	readFailed bool           // a read returned a result that the first answer may differ from
	cancel     context.CancelFunc
	dropped    bool
}

func newEntry(k key) *entry { return &entry{key: k, ready: make(chan struct{})} }

// settle releases waiting reads. The caller holds Objects.mu.
func (e *entry) settle() {
	if !e.settled {
		e.settled = true
		close(e.ready)
	}
}

// drop stops the follower of an entry that no pod references. The caller holds Objects.mu.
func (e *entry) drop() {
	e.dropped = true
	if e.cancel != nil {
		e.cancel()
	}
	e.settle()
}

// watched returns the object of an entry. It fetches an object that no known
// pod references, since a pod may become known shortly after the first read for
// it.
func (o *Objects) watched(ctx context.Context, k key) (objects.Object, error) {
	for {
		o.mu.Lock()
		e := o.entries[k]
		if e == nil {
			local := o.locals.Has(k)
			if !local {
				o.strayed.Insert(k)
			}
			o.mu.Unlock()
			if local {
				return nil, localOnly(k)
			}
			return o.fetched.read(ctx, k)
		}
		found, known, err := e.object, e.known, e.err
		e.readFailed = e.readFailed || err != nil
		o.mu.Unlock()
		switch {
		case known && found == nil:
			return nil, objects.NotFound(k)
		case known:
			return found, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s from the API server: %w", k, context.Cause(ctx))
		case <-o.done:
			return nil, fmt.Errorf("wait for %s from the API server: %w", k, errShutdown)
		}
	}
}

// localOnly returns the error for an object that only static pods reference.
func localOnly(k key) error {
	return fmt.Errorf("not read from API server, since only static pods reference it: %w", objects.NotFound(k))
}

// onAnswer records the API server's answer, and calls Changed if the answer
// differs from what earlier reads returned. found is nil if the object does not
// exist. It reports whether the object is immutable.
func (o *Objects) onAnswer(e *entry, found objects.Object) (final bool) {
	o.mu.Lock()
	changed := e.known && !same(e.object, found) || !e.known && e.readFailed
	e.known, e.object, e.err = true, found, nil
	e.settle()
	dropped := e.dropped
	o.mu.Unlock()
	if changed && !dropped && o.config.Changed != nil {
		o.config.Changed(e.key.Kind, e.key.Namespace, e.key.Name)
	}
	return immutable(found)
}

// failed records a failure while nothing is known.
func (o *Objects) failed(e *entry, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !e.known {
		e.err = fmt.Errorf("%s: %w", e.key, checkNotFound(err))
		e.settle()
	}
}

// immutable reports whether an object's content never changes.
func immutable(found objects.Object) bool {
	var flag *bool
	switch found := found.(type) {
	case *v1.ConfigMap:
		flag = found.Immutable
	case *v1.Secret:
		flag = found.Immutable
	}
	return flag != nil && *flag
}

// same reports whether two versions of an object, each of which may be nil, are
// equal for a pod. Annotations are ignored: a lock kept in an annotation
// changes every few seconds.
func same(a, b objects.Object) bool {
	switch a := a.(type) {
	case *v1.ConfigMap:
		b, ok := b.(*v1.ConfigMap)
		return ok && (a.UID == b.UID && a.ResourceVersion == b.ResourceVersion ||
			maps.Equal(a.Data, b.Data) && maps.EqualFunc(a.BinaryData, b.BinaryData, bytes.Equal))
	case *v1.Secret:
		b, ok := b.(*v1.Secret)
		return ok && (a.UID == b.UID && a.ResourceVersion == b.ResourceVersion ||
			a.Type == b.Type && maps.EqualFunc(a.Data, b.Data, bytes.Equal))
	}
	return a == nil && b == nil
}
