// Package fake is an API server for tests of what follows resources: it lists
// in pages, watches from any version, and fails as a test has it. No binary
// links it.
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

// Object is what the server stores.
type Object interface {
	runtime.Object
	metav1.Object
}

// change is an event of a resource.
type change struct {
	resource string
	event    watch.Event
}

// Server is the API server. All methods may be called at once.
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

// New makes a server that has nothing.
func New() *Server {
	return &Server{version: 1, objects: make(map[string]map[string]Object), streams: make(map[*stream]struct{})}
}

func copyOf(o Object) Object {
	c, _ := o.DeepCopyObject().(Object)
	return c
}

// Put stores an object as the next version.
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

// Remove deletes an object as the next version.
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

// Send sends any event on every watch of a resource.
func (s *Server) Send(r apiclient.Resource, e watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		if w.resource == r.String() {
			w.Action(e.Type, e.Object)
		}
	}
}

// Cut breaks all watches off.
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

// Compact forgets all versions before this one.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
}

// Fail has calls answered with what fail says, such as of "list nodes"; nil is
// nothing.
func (s *Server) Fail(fail func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// Refuse has all calls answered as the authorizer does.
func (s *Server) Refuse() {
	s.Fail(func(call string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: call}, "", fmt.Errorf("no"))
	})
}

// Made answers the calls since the last time.
func (s *Server) Made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Asked are the options of all lists and watches.
func (s *Server) Asked() []metav1.ListOptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.options)
}

// Watches is how many there are.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// call notes a call, under the lock.
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

// List lists a page.
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

// Watch watches from a version.
func (s *Server) Watch(_ context.Context, r apiclient.Resource, _ string, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("watch", r, options); err != nil {
		return nil, err
	}
	from, err := strconv.Atoi(options.ResourceVersion)
	if err != nil || options.TimeoutSeconds == nil || !options.AllowWatchBookmarks {
		return nil, apierrors.NewBadRequest("a watch needs a version, a timeout and bookmarks")
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
