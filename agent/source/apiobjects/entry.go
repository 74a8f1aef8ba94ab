package apiobjects

import (
	"context"
	"fmt"

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

// get returns an object. A ConfigMap or Secret is from memory if a pod references
// it and the API server has answered once; otherwise get waits for that. If the API
// server denies the request or is unreachable, it returns an error as long as
// nothing is known. Any other object, and one that no known pod references, is
// fetched: a pod may become known shortly after the first read for it. A claim or a
// volume is at most a minute old, a runtime class five minutes, or older if the API
// server is unreachable.
func (o *Objects) get(ctx context.Context, k key) (objects.Object, error) {
	for {
		o.mu.Lock()
		e := o.entries[k]
		if e == nil {
			local := o.locals.Has(k)
			if !local && isWatched(k) {
				o.strayed.Insert(k)
			}
			o.mu.Unlock()
			if local {
				return nil, fmt.Errorf("not read from API server, since only static pods reference it: %w", objects.NotFound(k))
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

// onAnswer records the API server's answer, and calls Changed if the answer
// differs from what earlier reads returned. found is nil if the object does not
// exist. It reports whether the object is immutable.
func (o *Objects) onAnswer(e *entry, found objects.Object) (final bool) {
	o.mu.Lock()
	changed := e.known && !objects.Same(e.object, found) || !e.known && e.readFailed
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
