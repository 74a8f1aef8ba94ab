package apiservertest

import (
	"context"
	"strconv"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// selector selects objects.
type selector struct {
	resource  apiclient.Resource
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (s selector) selects(o Object) bool {
	return o != nil && resourceOf(o) == s.resource && (s.namespace == "" || o.GetNamespace() == s.namespace) &&
		s.labels.Matches(labels.Set(o.GetLabels())) && s.fields.Matches(fieldsOf(o))
}

// fieldsOf returns the fields of an object that a field selector may contain.
func fieldsOf(o Object) fields.Set {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	switch o := o.(type) {
	case *v1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
	case *certificatesv1beta1.ClusterTrustBundle:
		set["spec.signerName"] = o.Spec.SignerName
	}
	return set
}

// selection returns a list or watch, and what it selects.
func (c Client) selection(verb string, resource apiclient.Resource, namespace string, options metav1.ListOptions) (Call, selector, error) {
	call := Call{Verb: verb, Resource: resource, Namespace: namespace, User: c.user, List: options}
	byLabels, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return call, selector{}, apierrors.NewBadRequest(err.Error())
	}
	byFields, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return call, selector{}, apierrors.NewBadRequest(err.Error())
	}
	for _, r := range byFields.Requirements() {
		if !fieldsOf(kinds[resource]).Has(r.Field) {
			return call, selector{}, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	call.Name, _ = byFields.RequiresExactMatch("metadata.name")
	return call, selector{resource, namespace, byLabels, byFields}, nil
}

// stream is a watch.
type stream struct {
	server *Server
	sel    selector
	events chan watch.Event
	ends   []func() bool // to call when it ends
}

// open opens a watch. The caller holds the lock.
func (s *Server) open(ctx context.Context, sel selector, options metav1.ListOptions) *stream {
	w := &stream{server: s, sel: sel, events: make(chan watch.Event, 16384)}
	s.streams[w] = struct{}{}
	w.ends = append(w.ends, context.AfterFunc(ctx, w.Stop))
	limit := s.faults.WatchLimit
	if limit == 0 && options.TimeoutSeconds != nil {
		limit = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	from, err := strconv.Atoi(options.ResourceVersion)
	if limit > 0 {
		bookmark := options.AllowWatchBookmarks && !s.faults.NoBookmarks
		w.ends = append(w.ends, time.AfterFunc(limit, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if bookmark && ctx.Err() == nil {
				w.send(watch.Bookmark, s.bookmark(sel.resource, max(from, s.version)))
			}
			w.close()
		}).Stop)
	}
	switch {
	case err != nil || from == 0:
		for _, o := range s.sorted() {
			w.changed(change{is: o})
		}
	case from < s.oldest:
		status := apierrors.NewResourceExpired("too old resource version").Status()
		w.events <- watch.Event{Type: watch.Error, Object: &status}
		w.close()
	default:
		for _, c := range s.history {
			if c.version > from {
				w.changed(c)
			}
		}
	}
	return w
}

func (s *Server) bookmark(resource apiclient.Resource, version int) Object {
	o := copyOf(kinds[resource])
	o.SetResourceVersion(strconv.Itoa(version))
	return o
}

// changed sends a change as the watch sees it: an object that it no longer selects is
// deleted.
func (w *stream) changed(c change) {
	was, is := c.was != nil && w.sel.selects(c.was), c.is != nil && w.sel.selects(c.is)
	switch {
	case was && is:
		w.send(watch.Modified, c.is)
	case is:
		w.send(watch.Added, c.is)
	case was:
		gone := copyOf(c.was)
		if c.is != nil {
			gone.SetResourceVersion(c.is.GetResourceVersion())
		}
		w.send(watch.Deleted, gone)
	}
}

// send sends an event with a copy of an object to an open watch.
func (w *stream) send(kind watch.EventType, o Object) {
	if _, open := w.server.streams[w]; !open {
		return
	}
	select {
	case w.events <- watch.Event{Type: kind, Object: o.DeepCopyObject()}:
	default:
		panic("a watch is not read")
	}
}

// ResultChan implements watch.Interface.
func (w *stream) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *stream) Stop() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.close()
}

func (w *stream) close() {
	if _, open := w.server.streams[w]; !open {
		return
	}
	delete(w.server.streams, w)
	for _, end := range w.ends {
		end()
	}
	close(w.events)
}

// Send sends an arbitrary event on every watch.
func (s *Server) Send(e watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		w.events <- e
	}
}

// Cut ends all watches, after further events.
func (s *Server) Cut(last ...watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		for _, e := range last {
			w.events <- e
		}
		w.close()
	}
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}
