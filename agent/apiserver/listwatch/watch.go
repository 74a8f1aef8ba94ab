package listwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// Durations of a watch.
const (
	// minWatch and maxWatch bound the requested timeout of a watch.
	minWatch = 5 * time.Minute
	maxWatch = 10 * time.Minute
	// overtime is how long a watch may exceed its timeout. A middlebox may hold a
	// dead connection open.
	overtime = 30 * time.Second
	// standing is how long a watch without an event must last to count as working.
	standing = time.Second
)

var (
	errWatchEnded = errors.New("watch ended")
	errShort      = errors.New("watch ended immediately")
	errBackwards  = errors.New("resource version went backwards")
)

// watch watches the objects from the current resource version until the watch ends.
// Its error is never nil.
func (f *Reflector[T]) watch(ctx context.Context) error {
	length := minWatch + rand.N(maxWatch-minWatch)
	seconds := int64(length / time.Second)
	options := f.options()
	options.ResourceVersion, options.AllowWatchBookmarks, options.TimeoutSeconds = f.version, true, &seconds
	ctx, cancel := context.WithTimeoutCause(ctx, length+overtime, errWatchEnded)
	defer cancel()
	w, err := f.cfg.API.Watch(ctx, f.cfg.Resource, metav1.NamespaceAll, options)
	if err != nil {
		f.handleWatchError(err)
		return err
	}
	defer w.Stop()
	stands := time.NewTimer(standing)
	defer stands.Stop()
	end := errShort
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stands.C:
			f.handleSuccess()
			end = errWatchEnded
		case event, open := <-w.ResultChan():
			if !open {
				return end
			}
			if err := f.event(event); err != nil {
				if !f.handleWatchError(err) && errors.Is(end, errWatchEnded) {
					err = errWatchEnded // a broken watch is no failure if the next one works
				}
				return err
			}
		}
	}
}

// event handles one event of the watch.
func (f *Reflector[T]) event(event watch.Event) error {
	if event.Type == watch.Error {
		return fmt.Errorf("watch %s: %w", f.cfg.Resource, apierrors.FromObject(event.Object))
	}
	o, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("watch %s: unexpected object %T", f.cfg.Resource, event.Object)
	}
	version := o.GetResourceVersion()
	if version == "" || version == "0" {
		return nil
	}
	order, err := resourceversion.CompareResourceVersion(version, f.version)
	if err == nil && order <= 0 { // a version that cannot be compared is new
		if order < 0 && event.Type == watch.Bookmark {
			return fmt.Errorf("watch %s: %w", f.cfg.Resource, errBackwards)
		}
		return nil
	}
	f.version = version
	if event.Type != watch.Bookmark {
		f.apply(event)
	}
	return nil
}

// apply applies a changed or deleted object.
func (f *Reflector[T]) apply(event watch.Event) {
	key, ok := keyOf(event.Object)
	if !ok {
		return
	}
	var now T
	kept := false
	if event.Type != watch.Deleted {
		now, kept = f.cfg.Keep(event.Object)
	}
	f.mu.Lock()
	was, there := f.objects[key]
	changed := there != kept || kept && !f.cfg.Same(was, now)
	switch {
	case kept && changed:
		f.objects[key] = now
	case !kept:
		delete(f.objects, key)
	}
	f.mu.Unlock()
	if changed {
		f.cfg.Changed()
	}
}

// causeDecoding is client-go's status cause of a broken event stream
// (rest/request.go).
const causeDecoding = "ClientWatchDecoding"

// handleWatchError handles a failed watch. It reports whether the watch cannot continue from
// its resource version, so that a list is next.
func (f *Reflector[T]) handleWatchError(err error) (stale bool) {
	if apierrors.HasStatusCause(err, causeDecoding) {
		// Either the connection broke, or an event cannot be decoded. The next watch
		// would receive such an event again.
		stale = f.torn == f.version
		f.torn = f.version
	} else {
		stale = expired(err) || errors.Is(err, errBackwards) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
			apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	}
	if stale {
		f.version, f.torn = "", ""
	}
	return stale
}

// expired reports whether err means that the API server has compacted the resource
// version.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
