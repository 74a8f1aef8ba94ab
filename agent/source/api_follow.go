package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/listwatch"
	"github.com/tinylet/tinylet/agent/wait"
)

// steady is how long a watch must last to count as working. Only then the backoff is reset.
const steady = 10 * time.Second

// watchSlack is how much earlier than requested a watch may end.
const watchSlack = 30 * time.Second

// Errors of a list or watch that the client does not return.
var (
	errEndedEarly = errors.New("API server ended a pod watch long before its timeout")
	errNoEnd      = errors.New("API server did not end a pod watch at its timeout")
	errNotPods    = errors.New("API server sent an event that is not a pod event")
	errNoVersion  = errors.New("pod list has no resource version")
	errBackwards  = errors.New("API server is behind the last known resource version")
	errSilent     = errors.New("pod watch ended without any event or bookmark")
)

// follower lists and watches a node's pods:
//
//	list --> watch --> watch --> ...
//
// Each watch continues where the previous one ended. The follower lists again
// if the API server no longer has that resource version, or if the state is in
// doubt. The next step starts at once after a list, after the expected end of a
// watch, after a watch without any event (errSilent), and after one that did not
// end (errNoEnd). After any other end or failure the follower backs off first.
type follower struct {
	config *APIConfig
	sink   *API

	wait       wait.Backoff
	version    string // last seen resource version; "" before the first list
	watching   bool   // the next step is a watch from version, else a list
	needLatest bool   // the list must come from the store, not from a cache
	brokenAt   string // the version at which an event stream broke
	lasted     bool   // the current or last watch lasted for steady
	down       bool   // an outage was logged, its end was not
}

// run lists and watches until ctx ends, and returns ctx's cause.
func (f *follower) run(ctx context.Context) error {
	for ctx.Err() == nil {
		f.lasted = false
		again := f.config.Recovered.Next()
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

// list reads the full set. The first list may come from the API server's cache,
// as the kubelet's does. Later ones must not be older than the last known
// version. If the state is in doubt, the list is read from the store.
func (f *follower) list(ctx context.Context) error {
	options := f.options()
	options.ResourceVersion = f.version
	switch {
	case f.needLatest:
		options.ResourceVersion = ""
	case f.version == "":
		options.ResourceVersion = "0"
	}
	var list v1.PodList
	if err := f.config.API.List(ctx, apiclient.Pods, metav1.NamespaceAll, options, &list); err != nil {
		return fmt.Errorf("list the node's pods: %w", err)
	}
	if list.ResourceVersion == "" || list.ResourceVersion == "0" {
		return errNoVersion
	}
	if !f.needLatest && f.version != "" && newer(f.version, list.ResourceVersion) {
		return errBackwards
	}
	f.version, f.watching, f.needLatest, f.brokenAt = list.ResourceVersion, true, false, ""
	f.sink.onList(list.Items)
	return nil
}

func (f *follower) options() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", f.config.NodeName).String()}
}

// watch receives changes from the last known version on until the watch ends.
// It returns nil if that end was expected.
func (f *follower) watch(ctx context.Context) error {
	var due time.Time
	open := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		w, err := f.config.API.Watch(ctx, apiclient.Pods, metav1.NamespaceAll, options)
		if err != nil {
			return nil, fmt.Errorf("watch the node's pods: %w", err)
		}
		due = time.Now().Add(time.Duration(*options.TimeoutSeconds) * time.Second)
		return w, nil
	}
	silent := true
	err := listwatch.Watch(ctx, f.options(), f.version, steady, open, f.markWorking, func(e watch.Event) error {
		word, err := f.handleEvent(e)
		silent = silent && !word
		return err
	})
	switch {
	case errors.Is(err, listwatch.ErrEnded):
		return errNoEnd
	case err != nil:
		return err
	case time.Until(due) > watchSlack:
		return errEndedEarly
	case silent:
		return errSilent
	}
	return nil
}

// handleEvent handles one watch event and reports whether it carried a resource
// version.
func (f *follower) handleEvent(e watch.Event) (word bool, err error) {
	if status, ok := e.Object.(*metav1.Status); ok && status != nil {
		return false, fmt.Errorf("watch the node's pods: %w", apierrors.FromObject(status))
	}
	p, ok := e.Object.(*v1.Pod)
	if !ok || p == nil {
		return false, fmt.Errorf("%w: %T", errNotPods, e.Object)
	}
	word = p.ResourceVersion != "" && p.ResourceVersion != "0"
	news := word && newer(p.ResourceVersion, f.version)
	switch e.Type {
	case watch.Added, watch.Modified:
		// An event that is not newer is a repetition, perhaps of a deleted pod.
		if news {
			f.sink.onEvent(e.Type, p)
		}
	case watch.Deleted:
		f.sink.onEvent(e.Type, p)
	case watch.Bookmark:
		if word && newer(f.version, p.ResourceVersion) {
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

// markWorking records that a watch has lasted for steady.
func (f *follower) markWorking() {
	f.wait.Reset()
	f.lasted, f.brokenAt = true, ""
	if f.down {
		f.down = false
		f.config.Log.Info("resumed watching the node's pods")
	}
}

// failed decides how to continue after a failure. It logs the start of an
// outage; the end of a working watch is not one yet.
func (f *follower) failed(err error) {
	if !f.lasted && !f.down {
		f.down = true
		f.config.Log.Warn("cannot list or watch the node's pods", "error", err)
	}
	switch f.remedy(err) {
	case again:
	case relist:
		f.watching = false
	case relistLatest:
		f.watching, f.needLatest = false, true
	}
}

// remedy is the step that follows a failure.
type remedy uint8

const (
	again        remedy = iota // repeat the step
	relist                     // list, not older than the last known version
	relistLatest               // list from the store
)

func (f *follower) remedy(err error) remedy {
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, errNotPods), errors.Is(err, errSilent), errors.Is(err, errBackwards), listwatch.Expired(err) && !f.watching,
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return relistLatest
	case listwatch.Expired(err):
		// After a restart of the API server every node lists: use its cache.
		return relist
	case !errors.As(err, &status):
		return again
	case listwatch.BrokenStream(err):
		// A broken connection, or an event that cannot be decoded and that the
		// next watch would start with again.
		if f.brokenAt == f.version {
			return relistLatest
		}
		f.brokenAt = f.version
		return again
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return again
	case status.Status().Code >= 400 && status.Status().Code < 500:
		return relistLatest
	}
	return relist
}
