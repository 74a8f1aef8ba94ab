// Package fake provides an API server for tests of list and watch clients. It lists
// in pages, watches from any version, and fails as configured. No binary links it.
package fake

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// Object is an object that the server stores.
type Object interface {
	runtime.Object
	metav1.Object
}

// change is an event of a resource.
type change struct {
	resource string
	event    watch.Event
}

// Server is the fake API server. Its methods may be called concurrently.
type Server struct {
	mu        sync.Mutex
	version   int
	compacted int                          // versions below are too old to watch from
	objects   map[string]map[string]Object // by resource, namespace and name
	history   []change                     // the event at i made version i+2
	streams   map[*stream]struct{}
	calls     []string
	options   []metav1.ListOptions
	fail      func(call string) error
}

// stream is one watch.
type stream struct {
	*watch.RaceFreeFakeWatcher
	s        *Server
	resource string
	end      *time.Timer
}

// Stop ends the watch.
func (w *stream) Stop() {
	w.s.mu.Lock()
	delete(w.s.streams, w)
	w.s.mu.Unlock()
	w.end.Stop()
	w.RaceFreeFakeWatcher.Stop()
}

// New returns an empty server.
func New() *Server {
	return &Server{version: 1, objects: make(map[string]map[string]Object), streams: make(map[*stream]struct{})}
}

func copyOf(o Object) Object {
	c, _ := o.DeepCopyObject().(Object)
	return c
}

// Put stores an object under a new resource version.
func (s *Server) Put(r apiclient.Resource, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.objects[r.String()]
	if all == nil {
		all = make(map[string]Object)
		s.objects[r.String()] = all
	}
	kind := watch.Modified
	name := o.GetNamespace() + "/" + o.GetName()
	if all[name] == nil {
		kind = watch.Added
	}
	all[name] = o
	s.happens(r, kind, o)
}

// Remove deletes an object under a new resource version.
func (s *Server) Remove(r apiclient.Resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := copyOf(s.objects[r.String()][namespace+"/"+name])
	delete(s.objects[r.String()], namespace+"/"+name)
	s.happens(r, watch.Deleted, o)
}

func (s *Server) happens(r apiclient.Resource, kind watch.EventType, o Object) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	c := change{r.String(), watch.Event{Type: kind, Object: copyOf(o)}}
	s.history = append(s.history, c)
	for w := range s.streams {
		if w.resource == c.resource {
			w.Action(kind, copyOf(o))
		}
	}
}

// Send sends an arbitrary event on every watch of a resource.
func (s *Server) Send(r apiclient.Resource, e watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		if w.resource == r.String() {
			w.Action(e.Type, e.Object)
		}
	}
}

// Cut ends all watches.
func (s *Server) Cut() {
	s.mu.Lock()
	streams := make([]*stream, 0, len(s.streams))
	for w := range s.streams {
		streams = append(streams, w)
	}
	s.mu.Unlock()
	for _, w := range streams {
		w.Stop()
	}
}

// Compact makes all versions before the current one too old to watch from.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
}

// Fail makes fail decide the result of calls, such as "list nodes". A nil error or
// a nil fail lets the call succeed.
func (s *Server) Fail(fail func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// Refuse makes all calls fail with Forbidden.
func (s *Server) Refuse() {
	s.Fail(func(call string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: call}, "", fmt.Errorf("no"))
	})
}

// Made returns the calls since the last call of Made.
func (s *Server) Made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Asked returns the options of all lists and watches.
func (s *Server) Asked() []metav1.ListOptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.options)
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// call records a call. The caller holds the lock.
func (s *Server) call(verb string, r apiclient.Resource, options metav1.ListOptions) error {
	call := verb + " " + r.String()
	s.calls = append(s.calls, call)
	s.options = append(s.options, options)
	if s.fail != nil {
		if err := s.fail(call); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	return nil
}

// List returns a page of objects.
func (s *Server) List(_ context.Context, r apiclient.Resource, _ string, options metav1.ListOptions, into runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("list", r, options); err != nil {
		return err
	}
	names := make([]string, 0, len(s.objects[r.String()]))
	for name := range s.objects[r.String()] {
		if name > options.Continue {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	head, err := meta.ListAccessor(into)
	if err != nil {
		return err
	}
	head.SetResourceVersion(strconv.Itoa(s.version))
	if limit := int(options.Limit); limit > 0 && len(names) > limit {
		names = names[:limit]
		head.SetContinue(names[limit-1])
	}
	all := make([]runtime.Object, len(names))
	for i, name := range names {
		all[i] = copyOf(s.objects[r.String()][name])
	}
	return meta.SetList(into, all)
}

// Watch watches from a resource version.
func (s *Server) Watch(_ context.Context, r apiclient.Resource, _ string, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("watch", r, options); err != nil {
		return nil, err
	}
	from, err := strconv.Atoi(options.ResourceVersion)
	if err != nil || options.TimeoutSeconds == nil || !options.AllowWatchBookmarks {
		return nil, apierrors.NewBadRequest("a watch requires a resource version, a timeout and bookmarks")
	}
	w := &stream{RaceFreeFakeWatcher: watch.NewRaceFreeFake(), s: s, resource: r.String()}
	if from < s.compacted {
		status := apierrors.NewResourceExpired("too old resource version").Status()
		w.Error(&status)
	} else {
		for _, c := range s.history[min(max(from-1, 0), len(s.history)):] {
			if c.resource == w.resource {
				w.Action(c.event.Type, c.event.Object.DeepCopyObject())
			}
		}
	}
	s.streams[w] = struct{}{}
	w.end = time.AfterFunc(time.Duration(*options.TimeoutSeconds)*time.Second, w.Stop)
	return w, nil
}
