package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/wait"
)

// standing is how long a watch without events must last to count as established: the
// client also returns a watch when the connection breaks at once.
const standing = time.Second

var errShort = errors.New("watch ended immediately")

// follower keeps one entry up to date.
type follower struct {
	o       *Objects
	e       *entry
	backoff wait.Backoff
	version string // to continue watching from; "" means list first
	refused bool   // a denied request was logged
	out     bool   // counted in the outage
}

// follow lists an object and watches it until ctx ends, no pod references it, or
// the object is immutable.
func (o *Objects) follow(ctx context.Context, e *entry) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.mu.Lock()
	dropped := e.dropped
	e.cancel = cancel
	o.mu.Unlock()
	if dropped {
		return
	}
	f := &follower{o: o, e: e}
	defer func() {
		if f.out {
			f.o.outage.drop()
		}
	}()
	for {
		again := o.config.Recovered.Next()
		final, err := f.round(ctx)
		switch {
		case final || ctx.Err() != nil:
			return
		case !errors.Is(err, listwatch.ErrEnded):
			f.recordFailure(err)
		}
		if !f.backoff.Wait(ctx, again) {
			return
		}
	}
}

// round lists the object if needed and watches it once. It always returns an
// error, which is listwatch.ErrEnded after a normal end.
func (f *follower) round(ctx context.Context) (final bool, err error) {
	if f.version == "" {
		var found objects.Object
		var version string
		onOwnStack(func() { found, version, err = f.list(ctx) })
		if err != nil {
			return false, err
		}
		f.healthy()
		if f.o.onAnswer(f.e, found) {
			return true, listwatch.ErrEnded
		}
		f.version = version
	}
	final, err = f.watch(ctx)
	if listwatch.Stale(err) {
		// An expired resource version is normal after an outage.
		f.version, err = "", listwatch.ErrEnded
	}
	return final, err
}

// onOwnStack runs do on a new goroutine and waits for it. A goroutine that waits for
// minutes would keep the deep stack that do needs.
func onOwnStack(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// options select the one object. The node authorizer denies a list or watch of
// more.
func (f *follower) options() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", f.e.key.Name).String()}
}

func (f *follower) resource() apiclient.Resource {
	if f.e.key.Kind == objects.KindSecret {
		return apiclient.Secrets
	}
	return apiclient.ConfigMaps
}

// list returns the current object, or nil if it does not exist. It requests the
// most recent state, since environment variables are set from it only once.
func (f *follower) list(ctx context.Context) (found objects.Object, version string, err error) {
	select {
	case f.o.listing <- struct{}{}:
		defer func() { <-f.o.listing }()
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	var list interface {
		runtime.Object
		metav1.ListInterface
	} = &v1.ConfigMapList{}
	if f.e.key.Kind == objects.KindSecret {
		list = &v1.SecretList{}
	}
	if err := f.o.config.API.List(ctx, f.resource(), f.e.key.Namespace, f.options(), list); err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if o, ok := item.(objects.Object); ok && f.own(o) {
			found = o
		}
		return nil
	})
	return found, list.GetResourceVersion(), err
}

// own reports whether an object is the one of the entry, and slims it.
func (f *follower) own(o metav1.Object) bool {
	if o.GetName() != f.e.key.Name || o.GetNamespace() != f.e.key.Namespace {
		return false
	}
	slim(o)
	return true
}

// watch watches the object from f.version until the watch ends.
func (f *follower) watch(ctx context.Context) (final bool, err error) {
	open := func(ctx context.Context, options metav1.ListOptions) (w watch.Interface, err error) {
		onOwnStack(func() { w, err = f.o.config.API.Watch(ctx, f.resource(), f.e.key.Namespace, options) })
		return w, err
	}
	end := errShort
	works := func() {
		// Only this resets the backoff: an API server that allows lists but not
		// watches must not be listed every second.
		f.backoff.Reset()
		f.healthy()
		end = listwatch.ErrEnded
	}
	err = listwatch.Watch(ctx, f.options(), f.version, standing, open, works, func(event watch.Event) (err error) {
		switch final, err = f.event(event); {
		case err != nil:
			return err
		case final:
			return listwatch.ErrEnded
		}
		works()
		return nil
	})
	if err == nil || !listwatch.Stale(err) && errors.Is(end, listwatch.ErrEnded) {
		err = end // a single broken watch is not a failure
	}
	return final, err
}

// event handles one event of the watch.
func (f *follower) event(event watch.Event) (final bool, err error) {
	if event.Type == watch.Error {
		return false, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
	}
	o, ok := event.Object.(objects.Object)
	if !ok {
		return false, fmt.Errorf("watch: unexpected object %T", event.Object)
	}
	f.version = o.GetResourceVersion()
	if event.Type == watch.Bookmark || !f.own(o) {
		return false, nil
	}
	if event.Type == watch.Deleted {
		return f.o.onAnswer(f.e, nil), nil
	}
	return f.o.onAnswer(f.e, o), nil
}

// recordFailure records a failure and logs the first one. A denied request is logged
// per object, an unreachable API server once for all objects.
func (f *follower) recordFailure(err error) {
	f.o.failed(f.e, err)
	refused := apierrors.IsForbidden(err)
	if refused && f.out {
		f.out = false
		f.o.outage.resolve()
	}
	switch {
	case refused && !f.refused:
		f.refused = true
		f.log(slog.LevelWarn, "API server denied access to object", "error", err)
	case !refused && !f.out:
		f.out = true
		f.o.outage.add(err)
	}
}

// healthy records that the API server responded.
func (f *follower) healthy() {
	if f.out {
		f.out = false
		f.o.outage.resolve()
	}
	if f.refused {
		f.refused = false
		f.log(slog.LevelInfo, "API server grants access to object again")
	}
}

func (f *follower) log(level slog.Level, message string, more ...any) {
	k := f.e.key
	f.o.config.Log.With("kind", k.Kind, "namespace", k.Namespace, "name", k.Name).Log(context.Background(), level, message, more...)
}

// outage counts the objects that currently cannot be read from the API server.
// It starts with the first and ends with the last.
type outage struct {
	log *apiclient.Outage

	mu sync.Mutex
	n  int
}

func (o *outage) add(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.log.Record(err)
}

func (o *outage) on() bool { return o.log.Active() }

// resolve removes one object that can be read again.
func (o *outage) resolve() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.log.Record(nil)
	}
}

// drop removes one object that is no longer referenced.
func (o *outage) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 {
		o.log.Forget()
	}
}
