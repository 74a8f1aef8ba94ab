package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

const (
	// A server is asked to end a watch after a random time between these, as
	// the kubelet does (k8s.io/client-go/tools/cache/reflector.go).
	minWatch = 5 * time.Minute
	maxWatch = 10 * time.Minute
	// watchSlack is how much earlier or later than asked a watch may end.
	watchSlack = 30 * time.Second
	// steady is how long a watch has to last to count as one that works.
	steady = 10 * time.Second
)

// Ends of a watch.
var (
	errEndedEarly = errors.New("the server ends a watch of pods long before its time")
	errNoEnd      = errors.New("the server does not end a watch of pods at its time")
	errNotPods    = errors.New("the server sends what is no event of a pod")
	errNoVersion  = errors.New("the server's list has no resource version")
	errBackwards  = errors.New("the server is behind what is known")
	errSilent     = errors.New("a whole watch of pods brought no word, not even a bookmark")
)

// causeDecoding is what client-go gives as the cause where a stream of events
// breaks (rest/request.go).
const causeDecoding = "ClientWatchDecoding"

// podSink takes what a follower learns; its methods are called one at a time.
type podSink interface {
	listed(items []v1.Pod)
	changed(kind watch.EventType, p *v1.Pod)
}

// follower lists and watches a node's pods. It goes
//
//	list --> watch --> watch --> ...
//
// each watch from where the former ended, and back to a list where the server
// no longer knows that place, or where it is to be doubted. An end of a watch
// that was due is followed by the next step at once, every other end and
// failure by a wait.
type follower struct {
	api      PodAPI
	nodeName string
	log      *slog.Logger
	sink     podSink

	recovered apiclient.Recoveries

	wait     apiclient.Backoff
	version  string // of the last word; "" before the first list
	watching bool   // a watch from version is next, else a list
	doubted  bool   // the list has to be the latest, not one of a cache
	torn     string // the version at which a watch broke off early
	lasted   bool   // the watch that is or was last has worked for a while
	down     bool   // an outage was logged
}

// run goes on until ctx ends.
func (f *follower) run(ctx context.Context) error {
	for ctx.Err() == nil {
		f.lasted = false
		again := f.recovered.Next()
		step := f.list
		if f.watching {
			step = f.watch
		}
		if err := step(ctx); err != nil && ctx.Err() == nil {
			f.failed(err)
			if !errors.Is(err, errSilent) && !errors.Is(err, errNoEnd) {
				f.wait.Wait(ctx, again)
			}
		}
	}
	return context.Cause(ctx)
}

// list brings the full set. The first may come from the server's cache, as
// the kubelet's, the next must not be older than what is known, and a doubted
// one is read from the store.
func (f *follower) list(ctx context.Context) error {
	options := f.options()
	options.ResourceVersion = f.version
	switch {
	case f.doubted:
		options.ResourceVersion = ""
	case f.version == "":
		options.ResourceVersion = "0"
	}
	var list v1.PodList
	if err := f.api.List(ctx, apiclient.Pods, metav1.NamespaceAll, options, &list); err != nil {
		return fmt.Errorf("list the node's pods: %w", err)
	}
	if list.ResourceVersion == "" || list.ResourceVersion == "0" {
		return errNoVersion
	}
	if !f.doubted && f.version != "" && later(f.version, list.ResourceVersion) {
		return errBackwards
	}
	f.version, f.watching, f.doubted, f.torn = list.ResourceVersion, true, false, ""
	f.sink.listed(list.Items)
	return nil
}

func (f *follower) options() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", f.nodeName).String()}
}

// watch follows the changes from the last word on, until its end. Its error is
// nil if that was due.
func (f *follower) watch(ctx context.Context) error {
	limit := minWatch + rand.N(maxWatch-minWatch)
	seconds := int64(limit / time.Second)
	options := f.options()
	options.ResourceVersion, options.AllowWatchBookmarks, options.TimeoutSeconds = f.version, true, &seconds
	w, err := f.api.Watch(ctx, apiclient.Pods, metav1.NamespaceAll, options)
	if err != nil {
		return fmt.Errorf("watch the node's pods: %w", err)
	}
	defer w.Stop()
	began, silent := time.Now(), true
	works := time.NewTimer(steady)
	defer works.Stop()
	over := time.NewTimer(limit + watchSlack)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-works.C:
			f.works()
		case <-over.C:
			return errNoEnd
		case e, open := <-w.ResultChan():
			switch {
			case open:
				word, err := f.take(e)
				if err != nil {
					return err
				}
				silent = silent && !word
			case time.Since(began) < limit-watchSlack:
				return errEndedEarly
			case silent:
				return errSilent
			default:
				return nil
			}
		}
	}
}

// take makes one event of a watch known, and says whether it was a word on
// where the server stands.
func (f *follower) take(e watch.Event) (word bool, err error) {
	if status, ok := e.Object.(*metav1.Status); ok && status != nil {
		return false, fmt.Errorf("watch the node's pods: %w", apierrors.FromObject(status))
	}
	p, ok := e.Object.(*v1.Pod)
	if !ok || p == nil {
		return false, fmt.Errorf("%w: %T", errNotPods, e.Object)
	}
	word = p.ResourceVersion != "" && p.ResourceVersion != "0"
	news := word && later(p.ResourceVersion, f.version)
	switch e.Type {
	case watch.Added, watch.Modified:
		// What is not later is repeated, and may be of a pod that is gone.
		if news {
			f.sink.changed(e.Type, p)
		}
	case watch.Deleted:
		f.sink.changed(e.Type, p)
	case watch.Bookmark:
		if word && later(f.version, p.ResourceVersion) {
			return true, errBackwards
		}
	case watch.Error:
		fallthrough
	default:
		return false, fmt.Errorf("%w: type %.20q", errNotPods, e.Type)
	}
	if news {
		f.version = p.ResourceVersion
	}
	return word, nil
}

// works is called when a watch has lasted.
func (f *follower) works() {
	f.wait.Reset()
	f.lasted, f.torn = true, ""
	if f.down {
		f.down = false
		f.log.Info("the node's pods are followed again")
	}
}

// failed decides how to go on. It logs the begin of an outage; the end of a
// watch that worked is none yet.
func (f *follower) failed(err error) {
	if !f.lasted && !f.down {
		f.down = true
		f.log.Warn("the node's pods cannot be followed; they stay as they are", "error", err)
	}
	switch f.remedy(err) {
	case again:
	case relist:
		f.watching = false
	case relistLatest:
		f.watching, f.doubted = false, true
	}
}

// remedy is what follows a failure.
type remedy uint8

// The remedies.

const (
	again        remedy = iota // the same
	relist                     // a list not older than what is known
	relistLatest               // a list of what the store has
)

func (f *follower) remedy(err error) remedy {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, errNotPods), errors.Is(err, errSilent), errors.Is(err, errBackwards), expired(err) && !f.watching,
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return relistLatest
	case expired(err):
		// After a restart of the server, every node's: its cache has to do.
		return relist
	case !errors.As(err, &status):
		return again
	case apierrors.HasStatusCause(err, causeDecoding):
		// A link that broke, or an event that cannot be decoded, which the
		// next watch would begin with as well.
		if f.torn == f.version {
			return relistLatest
		}
		f.torn = f.version
		return again
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return again
	case status.Status().Code >= 400 && status.Status().Code < 500:
		return relistLatest
	}
	return relist
}

// expired says that the server no longer knows the version it was asked for.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
