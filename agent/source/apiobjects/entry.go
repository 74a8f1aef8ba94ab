package apiobjects

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// entry is one ConfigMap or Secret that pods refer to. All but the first two
// fields are guarded by Objects.mu.
type entry struct {
	key   key
	ready chan struct{} // closed at the first answer or error, or when nobody refers to it any more

	settled bool           // ready is closed
	known   bool           // the server has answered
	object  runtime.Object // *v1.ConfigMap or *v1.Secret, nil if there is none
	err     error          // of the last attempt, while it is not known
	told    bool           // a read was answered otherwise than the first answer may be
	cancel  context.CancelFunc
	dropped bool
}

func newEntry(k key) *entry { return &entry{key: k, ready: make(chan struct{})} }

// settle lets reads go on. The caller holds the lock.
func (e *entry) settle() {
	if !e.settled {
		e.settled = true
		close(e.ready)
	}
}

// drop ends what follows the entry. The caller holds the lock.
func (e *entry) drop() {
	e.dropped = true
	if e.cancel != nil {
		e.cancel()
	}
	e.settle()
}

// ConfigMap answers a ConfigMap: from memory if a pod refers to it and the
// server has answered once; otherwise it waits for that. What the server
// refuses, or that it cannot be reached, is an error as long as nothing is
// known.
func (o *Objects) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	found, err := o.watched(ctx, key{objects.KindConfigMap, namespace, name})
	if err != nil {
		return nil, err
	}
	m, ok := found.(*v1.ConfigMap)
	if !ok {
		return nil, fmt.Errorf("configmap %s/%s: the server sent a %T", namespace, name, found)
	}
	return m, nil
}

// Secret answers a Secret as ConfigMap does a ConfigMap.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	found, err := o.watched(ctx, key{objects.KindSecret, namespace, name})
	if err != nil {
		return nil, err
	}
	s, ok := found.(*v1.Secret)
	if !ok {
		return nil, fmt.Errorf("secret %s/%s: the server sent a %T", namespace, name, found)
	}
	return s, nil
}

// watched answers what an entry knows. What no known pod refers to, as the
// pods may be told of a moment after the first read for them, is fetched.
func (o *Objects) watched(ctx context.Context, k key) (runtime.Object, error) {
	for {
		o.mu.Lock()
		e := o.entries[k]
		if e == nil {
			_, local := o.locals[k]
			if !local {
				o.strayed[k] = struct{}{}
			}
			o.mu.Unlock()
			if local {
				return nil, localOnly(k)
			}
			return o.strays.read(ctx, k)
		}
		found, known, err := e.object, e.known, e.err
		e.told = e.told || err != nil
		o.mu.Unlock()
		switch {
		case known && found == nil:
			return nil, notFound(k)
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
			return nil, fmt.Errorf("wait for %s from the API server: %w", k, errEnded)
		}
	}
}

// localOnly is the answer for what static pods alone refer to.
func localOnly(k key) error {
	return fmt.Errorf("only static pods refer to it, for which the API server is not asked: %w", notFound(k))
}

// answered notes what the server says, and tells of it if it is other than
// what reads were answered before. found is nil if there is no such object.
// It says whether the object will never change.
func (o *Objects) answered(e *entry, found runtime.Object) (final bool) {
	o.mu.Lock()
	changed := e.known && !same(e.object, found) || !e.known && e.told
	e.known, e.object, e.err = true, found, nil
	e.settle()
	dropped := e.dropped
	o.mu.Unlock()
	if changed && !dropped && o.config.Changed != nil {
		o.config.Changed(e.key.kind, e.key.namespace, e.key.name)
	}
	return immutable(found)
}

// failed notes that nothing can be known yet.
func (o *Objects) failed(e *entry, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !e.known {
		e.err = fmt.Errorf("%s: %w", e.key, genuine(err))
		e.settle()
	}
}

// fetchStray fetches a ConfigMap or Secret that no known pod refers to. It is
// kept for no longer than it takes to tell of the pod.
func (o *Objects) fetchStray(ctx context.Context, k key) (runtime.Object, validity, error) {
	var into interface {
		runtime.Object
		metav1.Object
	}
	resource := apiclient.ConfigMaps
	if into = new(v1.ConfigMap); k.kind == objects.KindSecret {
		resource, into = apiclient.Secrets, new(v1.Secret)
	}
	if err := o.config.API.Get(ctx, resource, k.namespace, k.name, into); err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", k, err)
	}
	slim(into)
	return into, validFor(recently), nil
}

// immutable says whether an object's content never changes.
func immutable(found runtime.Object) bool {
	var flag *bool
	switch found := found.(type) {
	case *v1.ConfigMap:
		flag = found.Immutable
	case *v1.Secret:
		flag = found.Immutable
	}
	return flag != nil && *flag
}

// same says whether two versions of an object, each of which may be nil, are
// one for a pod: whoever keeps a lock in an annotation changes that every few
// seconds.
func same(a, b runtime.Object) bool {
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

// stale says whether an error means that the version to go on from is of no
// use: the objects are to be listed anew.
func stale(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInvalid(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
