package apiobjects

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

var errLink = errors.New("no route to host")

// server is an API server that permits what a node may do.
type server struct {
	*apiservertest.Server

	mu     sync.Mutex
	fail   error            // of all requests
	refuse map[string]error // by the call
	hang   chan struct{}    // requests wait for it
}

func newServer() *server {
	s := &server{Server: apiservertest.New(), refuse: make(map[string]error)}
	s.SetFaults(apiservertest.Faults{Before: s.before})
	return s
}

// set changes the server under its lock.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) before(ctx context.Context, c apiservertest.Call) error {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fail != nil:
		return s.fail
	case c.Verb != "get" && c.Name == "" && (c.Resource == apiclient.ConfigMaps || c.Resource == apiclient.Secrets):
		return forbidden(c.Resource.String(), "")
	}
	return s.refuse[c.String()]
}

// forbidden is the node authorizer's answer.
func forbidden(r, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: r}, name, errors.New("no relationship found between node 'n' and this object"))
}

func (s *server) bookmark(version int) {
	s.Send(watch.Event{Type: watch.Bookmark, Object: &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}})
}

// made returns the calls since the last time.
func (s *server) made() []string {
	calls := s.Made()
	slices.Sort(calls)
	return calls
}

// askedFor returns the options of the watches.
func (s *server) askedFor() []metav1.ListOptions {
	var options []metav1.ListOptions
	for _, c := range s.Calls() {
		if c.Verb == "watch" {
			options = append(options, c.List)
		}
	}
	return options
}

// request returns the last TokenRequest.
func (s *server) request() *authenticationv1.TokenRequest {
	calls := s.Calls()
	request, _ := calls[len(calls)-1].Object.(*authenticationv1.TokenRequest)
	return request
}
