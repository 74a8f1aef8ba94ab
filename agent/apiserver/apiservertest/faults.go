package apiservertest

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// Call is a request.
type Call struct {
	Verb      string // get, list, watch, create, patch or delete
	Resource  apiclient.Resource
	Namespace string
	// Name is also that of the created object, or that of the one object that a list
	// or watch selects. It is the path of a request that is not for a resource.
	Name        string
	Subresource string
	User        string

	List      metav1.ListOptions // of a list or watch
	Object    runtime.Object     // of a create
	PatchType types.PatchType
	Patch     string
	Delete    metav1.DeleteOptions
}

// String returns the verb and the path, such as "get pods/shop/web".
func (c Call) String() string {
	return c.Verb + " " + path.Join(c.Resource.String(), c.Namespace, c.Name, c.Subresource)
}

func (c Call) key() key { return key{c.Resource, c.Namespace, c.Name} }

func (c Call) group() schema.GroupResource {
	return schema.GroupResource{Group: kindOf(kinds[c.Resource]).Group, Resource: c.Resource.String()}
}

// Faults change how requests are served. The zero Faults are none.
type Faults struct {
	// Latency is how long a request takes before it is served.
	Latency time.Duration
	// Before is called before a request is served. Its error is the response. It may
	// block until ctx ends. An error that is not an API status cuts the connection.
	Before func(ctx context.Context, c Call) error
	// After is called after a request was served successfully. Its error replaces the
	// response.
	After func(ctx context.Context, c Call) error
	// Admit changes an object that a request creates or has patched.
	Admit func(o runtime.Object)
	// WatchLimit replaces the timeouts of new watches if it is positive. A negative
	// one keeps them open.
	WatchLimit time.Duration
	// NoBookmarks makes watches end without bookmarks.
	NoBookmarks bool
	// EmptyCache makes lists with resource version 0 empty, as those of a cache that
	// lags.
	EmptyCache bool
}

// SetFaults replaces the faults.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Fail makes all requests fail with err; nil removes all faults.
func (s *Server) Fail(err error) {
	if err == nil {
		s.SetFaults(Faults{})
		return
	}
	s.SetFaults(Faults{Before: func(context.Context, Call) error { return err }})
}

// Refuse makes all requests fail with Forbidden.
func (s *Server) Refuse() {
	s.Fail(apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("no")))
}

// Calls returns all requests.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Made returns the requests since the last call of Made, as texts.
func (s *Server) Made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var made []string
	for _, c := range s.calls[s.reported:] {
		made = append(made, c.String())
	}
	s.reported = len(s.calls)
	return made
}

// InFlight returns the number of current requests, and the largest number so far.
// Watches do not count.
func (s *Server) InFlight() (now, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight, s.most
}

// serve serves a request by do, which runs with the lock held, and reads the result
// into into, which may be nil.
func (s *Server) serve(ctx context.Context, c Call, into runtime.Object, do func(Call) (runtime.Object, error)) error {
	counts := 1
	if c.Verb == "watch" {
		counts = 0
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.inFlight += counts
	s.most = max(s.most, s.inFlight)
	f := s.faults
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight -= counts
	}()
	err := f.before(ctx, c)
	if err == nil {
		var result runtime.Object
		s.mu.Lock()
		if result, err = do(c); err == nil {
			err = assign(into, result)
		}
		s.mu.Unlock()
	}
	if err == nil && f.After != nil {
		err = f.After(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}

func (f *Faults) before(ctx context.Context, c Call) error {
	if f.Latency > 0 {
		select {
		case <-time.After(f.Latency):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil || f.Before == nil {
		return ctx.Err()
	}
	return f.Before(ctx, c)
}
