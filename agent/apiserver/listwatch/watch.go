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
	// minWatch and maxWatch bound the requested timeout of a watch, as the kubelet's
	// (k8s.io/client-go/tools/cache/reflector.go).
	minWatch = 5 * time.Minute
	maxWatch = 10 * time.Minute
	// overtime is how long a watch may exceed its timeout. A middlebox may keep a dead
	// connection open.
	overtime = 30 * time.Second
	// standing is how long a watch must last to count as working, with or without events.
	standing = time.Second
)

// ErrEnded is the end of a watch that worked, and the error of Watch for a watch that
// exceeded its timeout.
var ErrEnded = errors.New("watch ended")

var (
	errShort     = errors.New("watch ended immediately")
	errBackwards = errors.New("resource version went backwards")
)

// Watch opens a watch from a resource version with bookmarks and a random timeout, and
// calls event with each event until the API server ends the watch or event fails. It
// calls works once, when the watch has lasted for standing. The error is nil if the API
// server ended the watch, else that of open or event, the cause of ctx, or ErrEnded.
func Watch(ctx context.Context, options metav1.ListOptions, version string, standing time.Duration,
	open func(context.Context, metav1.ListOptions) (watch.Interface, error), works func(), event func(watch.Event) error,
) error {
	length := minWatch + rand.N(maxWatch-minWatch)
	seconds := int64(length / time.Second)
	options.ResourceVersion, options.AllowWatchBookmarks, options.TimeoutSeconds = version, true, &seconds
	ctx, cancel := context.WithTimeoutCause(ctx, length+overtime, ErrEnded)
	defer cancel()
	w, err := open(ctx, options)
	if err != nil {
		return err
	}
	defer w.Stop()
	stands := time.NewTimer(standing)
	defer stands.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stands.C:
			works()
		case e, open := <-w.ResultChan():
			if ctx.Err() != nil { // a watch ends with its context
				return context.Cause(ctx)
			}
			if !open {
				return nil
			}
			if err := event(e); err != nil {
				return err
			}
		}
	}
}

// watch watches the objects from the current resource version until the watch ends.
// Its error is never nil.
func (f *Reflector[T]) watch(ctx context.Context) error {
	open := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return f.cfg.API.Watch(ctx, f.cfg.Resource, metav1.NamespaceAll, options)
	}
	end := errShort
	works := func() {
		f.handleSuccess()
		end = ErrEnded
	}
	err := Watch(ctx, f.options(), f.version, standing, open, works, f.event)
	if err == nil || !f.handleWatchError(err) && errors.Is(end, ErrEnded) {
		return end // a broken watch is no failure if the next one works
	}
	return err
}

// event applies one event of the watch. It ignores an event that is not newer than the
// current resource version.
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

// handleWatchError handles a failed watch. It reports whether the watch cannot continue from
// its resource version, so that a list is next.
func (f *Reflector[T]) handleWatchError(err error) (stale bool) {
	if BrokenStream(err) {
		// Either the connection broke, or an event cannot be decoded. The next watch
		// would receive such an event again.
		stale = f.torn == f.version
		f.torn = f.version
	} else {
		stale = errors.Is(err, errBackwards) || Stale(err)
	}
	if stale {
		f.version, f.torn = "", ""
	}
	return stale
}

// BrokenStream reports whether err has client-go's status cause of a broken event stream
// (rest/request.go).
func BrokenStream(err error) bool { return apierrors.HasStatusCause(err, "ClientWatchDecoding") }

// Stale reports whether err means that a watch cannot continue from its resource version,
// so that the objects must be listed.
func Stale(err error) bool {
	return Expired(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// Expired reports whether err means that the API server has compacted the resource
// version.
func Expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
