package follow

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
		return expired(err)
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
				if errors.Is(end, errOver) && !errors.Is(err, errExpired) {
					// That a watch breaks off is no trouble, if the next does not.
					err = errOver
				}
				return err
			}
		}
	}
}

// event takes one event of the watch.
func (f *Follower[T]) event(event watch.Event) error {
	if event.Type == watch.Error {
		err := apierrors.FromObject(event.Object)
		if !apierrors.HasStatusCause(err, "ClientWatchDecoding") && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) {
			// What the server says of a watch that stood is that it cannot go
			// on from there.
			return errors.Join(errExpired, err)
		}
		return fmt.Errorf("watch %s: %w", f.cfg.Resource, err)
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
	switch {
	case err == nil && order < 0 && event.Type == watch.Bookmark:
		return errors.Join(errExpired, errBackwards)
	case err == nil && order <= 0 && event.Type != watch.Deleted, event.Type == watch.Bookmark:
		f.version = later(order, err, version, f.version)
		return nil
	}
	f.version = later(order, err, version, f.version)
	f.apply(event)
	return nil
}

// later is the one of two versions that is to be gone on from. What cannot be
// compared is new.
func later(order int, err error, version, known string) string {
	if err == nil && order <= 0 {
		return known
	}
	return version
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

// expired makes errExpired of what a server says that cannot go on from the
// version.
func expired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return errors.Join(errExpired, err)
	}
	return err
}
