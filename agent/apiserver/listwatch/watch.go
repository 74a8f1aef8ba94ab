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

// Times of a watch.
const (
	// minWatch and maxWatch bound how long a watch is asked for.
	minWatch = 5 * time.Minute
	maxWatch = 10 * time.Minute
	// overtime is how long a watch may last beyond that: something between
	// here and the server may hold a dead one open.
	overtime = 30 * time.Second
	// standing is when a watch without an event counts as one that works.
	standing = time.Second
)

var (
	errOver      = errors.New("the watch has ended")
	errShort     = errors.New("the watch ended as soon as it began")
	errBackwards = errors.New("the server is behind what is known")
)

// watch follows the objects from the version until the watch ends.
func (f *Follower[T]) watch(ctx context.Context) error {
	length := minWatch + rand.N(maxWatch-minWatch)
	seconds := int64(length / time.Second)
	options := f.options()
	options.ResourceVersion, options.AllowWatchBookmarks, options.TimeoutSeconds = f.version, true, &seconds
	ctx, cancel := context.WithTimeoutCause(ctx, length+overtime, errOver)
	defer cancel()
	w, err := f.cfg.API.Watch(ctx, f.cfg.Resource, metav1.NamespaceAll, options)
	if err != nil {
		f.broken(err)
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
			f.well()
			end = errOver
		case event, open := <-w.ResultChan():
			if !open {
				return end
			}
			if err := f.event(event); err != nil {
				if !f.broken(err) && errors.Is(end, errOver) {
					err = errOver // that a watch breaks off is no trouble, if the next does not
				}
				return err
			}
		}
	}
}

// event takes one event of the watch.
func (f *Follower[T]) event(event watch.Event) error {
	if event.Type == watch.Error {
		return fmt.Errorf("watch %s: %w", f.cfg.Resource, apierrors.FromObject(event.Object))
	}
	o, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("watch %s: the server sent a %T", f.cfg.Resource, event.Object)
	}
	version := o.GetResourceVersion()
	if version == "" || version == "0" {
		return nil
	}
	order, err := resourceversion.CompareResourceVersion(version, f.version)
	if err == nil && order <= 0 { // what cannot be compared is new
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

// apply makes a change known.
func (f *Follower[T]) apply(event watch.Event) {
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

// causeDecoding is what client-go gives as the cause where a stream of events
// breaks (rest/request.go).
const causeDecoding = "ClientWatchDecoding"

// broken notes how a watch failed, and says whether there is no going on from
// its version, so that a list is next.
func (f *Follower[T]) broken(err error) (stale bool) {
	if apierrors.HasStatusCause(err, causeDecoding) {
		// A link that broke, or an event that cannot be decoded, which the next
		// watch would begin with as well.
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

// expired says that the server no longer knows the version.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
