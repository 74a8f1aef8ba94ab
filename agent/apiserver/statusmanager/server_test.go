package statusmanager_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch/strategicpatchtest"
)

var _ statusmanager.API = (*apiclient.Client)(nil)

var errLink = errors.New("dial tcp 10.0.0.1:6443: connection refused")

// call is one request.
type call struct {
	verb, name string
	patch      string
	at         time.Time
}

// server is an API server with pods. Its objects are never changed in place.
type server struct {
	t *testing.T
	// before is asked ahead of each request, and may block until ctx ends; an
	// error is the answer. after may lose an answer. Both are nil at first.
	before func(ctx context.Context, c call) error
	after  func(c call) error
	// keeps changes what a status becomes, nil keeps all of it.
	keeps func(*v1.PodStatus)
	// watch hears each change; nil is a watch that broke.
	watch      func([]*v1.Pod)
	latency    time.Duration
	namespaces []string

	mu           sync.Mutex
	pods         map[string]*v1.Pod
	rv, uid      int
	calls        []call
	flying, most int
}

func newServer(t *testing.T) *server {
	return &server{t: t, pods: make(map[string]*v1.Pod), rv: 100, latency: 10 * time.Millisecond, namespaces: []string{"n"}}
}

// put adds or changes a pod on behalf of another client.
func (s *server) put(p *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep(p.DeepCopy())
}

// keep stores a pod. The caller holds the lock.
func (s *server) keep(p *v1.Pod) *v1.Pod {
	s.rv++
	p.ResourceVersion = strconv.Itoa(s.rv)
	if p.UID == "" {
		s.uid++
		p.UID = types.UID(fmt.Sprintf("uid-%d", s.uid))
	}
	s.pods[p.Name] = p
	s.tell()
	return p
}

func (s *server) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(name)
}

func (s *server) forget(name string) {
	delete(s.pods, name)
	s.tell()
}

func (s *server) tell() {
	if s.watch != nil {
		s.watch(s.set())
	}
}

func (s *server) set() []*v1.Pod {
	var list []*v1.Pod
	for _, p := range s.pods {
		list = append(list, p)
	}
	return list
}

func (s *server) get(name string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[name]
}

// since are the requests after the first n, as texts.
func (s *server) since(n int) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[min(n, len(s.calls)):]
}

func (s *server) count() int { return len(s.since(0)) }

var podsResource = schema.GroupResource{Resource: "pods"}

// serve handles one request: do runs with the lock held.
func (s *server) serve(ctx context.Context, r apiclient.Resource, c call, do func() error) error {
	if r != apiclient.Pods {
		s.t.Errorf("%s of %s", c.verb, r)
	}
	s.mu.Lock()
	c.at = time.Now()
	s.calls = append(s.calls, c)
	s.flying++
	s.most = max(s.most, s.flying)
	before, after := s.before, s.after
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.flying--
		s.mu.Unlock()
	}()
	select {
	case <-time.After(s.latency):
	case <-ctx.Done():
		return ctx.Err()
	}
	if before != nil {
		if err := before(ctx, c); err != nil {
			return fmt.Errorf("%s pods/%s: %w", c.verb, c.name, err)
		}
	}
	s.mu.Lock()
	err := do()
	s.mu.Unlock()
	if err == nil && after != nil {
		err = after(c)
	}
	if err != nil {
		return fmt.Errorf("%s pods/%s: %w", c.verb, c.name, err)
	}
	return nil
}

func (s *server) Get(ctx context.Context, r apiclient.Resource, _, name string, into runtime.Object) error {
	return s.serve(ctx, r, call{verb: "get", name: name}, func() error {
		p := s.pods[name]
		if p == nil {
			return apierrors.NewNotFound(podsResource, name)
		}
		p.DeepCopyInto(into.(*v1.Pod))
		return nil
	})
}

func (s *server) Create(ctx context.Context, r apiclient.Resource, namespace, name, _ string, object, into runtime.Object) error {
	p := object.(*v1.Pod).DeepCopy()
	if name != "" || namespace != p.Namespace || p.UID != "" || p.ResourceVersion != "" {
		s.t.Errorf("create %q in %q: %v", name, namespace, p.ObjectMeta)
	}
	return s.serve(ctx, r, call{verb: "create", name: p.Name}, func() error {
		if !strings.Contains(strings.Join(s.namespaces, " "), namespace) {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
		}
		if s.pods[p.Name] != nil {
			return apierrors.NewAlreadyExists(podsResource, p.Name)
		}
		p.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}
		p.Generation = 1
		s.keep(p).DeepCopyInto(into.(*v1.Pod))
		return nil
	})
}

func (s *server) Patch(ctx context.Context, r apiclient.Resource, _, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error {
	if subresource != "status" || kind != types.StrategicMergePatchType {
		s.t.Errorf("patch %q by %q", subresource, kind)
	}
	return s.serve(ctx, r, call{verb: "patch", name: name, patch: string(patch)}, func() error {
		p := s.pods[name]
		if p == nil {
			return apierrors.NewNotFound(podsResource, name)
		}
		fresh, err := strategicpatchtest.Apply(p, kind, patch)
		if err != nil {
			return err
		}
		if fresh.UID != p.UID {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
		}
		if s.keeps != nil {
			s.keeps(&fresh.Status)
		}
		s.keep(fresh).DeepCopyInto(into.(*v1.Pod))
		return nil
	})
}

func (s *server) Delete(ctx context.Context, r apiclient.Resource, _, name string, o metav1.DeleteOptions) error {
	if o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 || o.Preconditions == nil || o.Preconditions.UID == nil {
		s.t.Errorf("delete %s with %v", name, o)
	}
	return s.serve(ctx, r, call{verb: "delete", name: name}, func() error {
		p := s.pods[name]
		switch {
		case p == nil:
			return apierrors.NewNotFound(podsResource, name)
		case p.UID != *o.Preconditions.UID:
			return apierrors.NewConflict(podsResource, name, errors.New("the UID in the precondition is another"))
		case len(p.Finalizers) > 0:
			p = p.DeepCopy()
			at := metav1.Now()
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, new(int64)
			s.keep(p)
		default:
			s.forget(name)
		}
		return nil
	})
}
