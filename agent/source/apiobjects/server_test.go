package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

var (
	_ API    = (*apiclient.Client)(nil)
	_ API    = (*server)(nil)
	_ Source = (*Objects)(nil)
)

var errLink = errors.New("no route to host")

type stored interface {
	runtime.Object
	metav1.Object
}

// server is a fake API server that grants what a node may do.
type server struct {
	mu        sync.Mutex
	version   int
	compacted int // versions below are too old to watch from
	objects   map[string]stored
	gone      map[string]int // versions of deletions
	streams   map[*stream]struct{}
	calls     []string
	options   []metav1.ListOptions // of watches
	fail      error                // of all requests
	refuse    map[string]error     // by the call
	hang      chan struct{}        // requests wait for it
	request   *authenticationv1.TokenRequest
	tokenLife int64 // seconds that are granted; 0 is what is asked for
	asked     int   // how many tokens
	behind    bool  // lists from memory, for version 0, have nothing yet
	flying    int   // lists under way
	mostLists int
}

// stream is one watch.
type stream struct {
	*watch.RaceFreeFakeWatcher
	s    *server
	path string
	end  *time.Timer
}

func (w *stream) Stop() {
	w.s.mu.Lock()
	delete(w.s.streams, w)
	w.s.mu.Unlock()
	w.end.Stop()
	w.RaceFreeFakeWatcher.Stop()
}

func newServer() *server {
	return &server{
		version: 1, objects: make(map[string]stored), gone: make(map[string]int),
		streams: make(map[*stream]struct{}), refuse: make(map[string]error),
	}
}

func pathOf(r, namespace, name string) string { return r + "/" + namespace + "/" + name }

// put stores an object as the next version.
func (s *server) put(r string, o stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := pathOf(r, o.GetNamespace(), o.GetName())
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	kind := watch.Modified
	if s.objects[path] == nil {
		kind = watch.Added
	}
	s.objects[path] = o
	delete(s.gone, path)
	s.send(path, kind, o)
}

func (s *server) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[path]
	delete(s.objects, path)
	s.version++
	s.gone[path] = s.version
	o = copyOf(o)
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.send(path, watch.Deleted, o)
}

func (s *server) send(path string, kind watch.EventType, o stored) {
	for w := range s.streams {
		if w.path == path {
			w.Action(kind, copyOf(o))
		}
	}
}

func copyOf(o stored) stored {
	c, _ := o.DeepCopyObject().(stored)
	return c
}

// cut breaks every watch off, with an event of an error or without.
func (s *server) cut(object runtime.Object) {
	s.mu.Lock()
	streams := make([]*stream, 0, len(s.streams))
	for w := range s.streams {
		streams = append(streams, w)
	}
	s.mu.Unlock()
	for _, w := range streams {
		if object != nil {
			w.Error(object)
		} else {
			w.Stop()
		}
	}
}

func (s *server) bookmark(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		w.Action(watch.Bookmark, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}})
	}
}

// set changes the server under its lock.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// made answers the calls since the last time.
func (s *server) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	slices.Sort(calls)
	return calls
}

// askedFor answers what the watches asked for.
func (s *server) askedFor() []metav1.ListOptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.options)
}

func (s *server) watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// call notes a call and answers what it fails with.
func (s *server) call(ctx context.Context, verb, path string) error {
	s.mu.Lock()
	s.calls = append(s.calls, verb+" "+path)
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
	if s.fail != nil {
		return fmt.Errorf("%s %s: %w", verb, path, s.fail)
	}
	if err := s.refuse[verb+" "+path]; err != nil {
		return fmt.Errorf("%s %s: %w", verb, path, err)
	}
	return nil
}

func (s *server) Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error {
	path := pathOf(r.String(), namespace, name)
	if err := s.call(ctx, "get", path); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[path]
	if o == nil {
		return fmt.Errorf("get %s: %w", path, apierrors.NewNotFound(schema.GroupResource{Resource: r.String()}, name))
	}
	switch into := into.(type) {
	case *v1.ConfigMap:
		o.(*v1.ConfigMap).DeepCopyInto(into)
	case *v1.Secret:
		o.(*v1.Secret).DeepCopyInto(into)
	case *v1.PersistentVolumeClaim:
		o.(*v1.PersistentVolumeClaim).DeepCopyInto(into)
	case *v1.PersistentVolume:
		o.(*v1.PersistentVolume).DeepCopyInto(into)
	case *nodev1.RuntimeClass:
		o.(*nodev1.RuntimeClass).DeepCopyInto(into)
	case *certificatesv1beta1.ClusterTrustBundle:
		o.(*certificatesv1beta1.ClusterTrustBundle).DeepCopyInto(into)
	default:
		return fmt.Errorf("no get into a %T", into)
	}
	return nil
}

// forbidden is the node authorizer's answer.
func forbidden(r, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: r}, name, errors.New("no relationship found between node 'n' and this object"))
}

// nameOf is the one name that a list or watch asks for.
func nameOf(r apiclient.Resource, options metav1.ListOptions) (string, error) {
	selector, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return "", err
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok {
		return "", forbidden(r.String(), "")
	}
	return name, nil
}

func (s *server) List(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	s.set(func() { s.flying++; s.mostLists = max(s.mostLists, s.flying) })
	defer s.set(func() { s.flying-- })
	switch into := into.(type) {
	case *v1.ServiceList:
		if err := s.call(ctx, "list", "services/"+namespace); err != nil {
			return err
		}
		if s.isBehind(options) {
			return nil
		}
		for _, o := range s.all("services/" + namespace + "/") {
			into.Items = append(into.Items, *o.(*v1.Service))
		}
		return nil
	case *certificatesv1beta1.ClusterTrustBundleList:
		return s.listBundles(ctx, options, into)
	}
	name, err := nameOf(r, options)
	if err != nil {
		return err
	}
	path := pathOf(r.String(), namespace, name)
	if err := s.call(ctx, "list", path); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[path]
	switch into := into.(type) {
	case *v1.ConfigMapList:
		into.ResourceVersion = strconv.Itoa(s.version)
		if o != nil {
			into.Items = []v1.ConfigMap{*copyOf(o).(*v1.ConfigMap)}
		}
	case *v1.SecretList:
		into.ResourceVersion = strconv.Itoa(s.version)
		if o != nil {
			into.Items = []v1.Secret{*copyOf(o).(*v1.Secret)}
		}
	default:
		return forbidden(r.String(), "")
	}
	return nil
}

// isBehind reports whether a list is answered from a memory that lags.
func (s *server) isBehind(options metav1.ListOptions) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind && options.ResourceVersion == "0"
}

// all are copies of the objects below a path, by name.
func (s *server) all(prefix string) []stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for path := range s.objects {
		if strings.HasPrefix(path, prefix) {
			names = append(names, path)
		}
	}
	slices.Sort(names)
	out := make([]stored, len(names))
	for i, name := range names {
		out[i] = copyOf(s.objects[name])
	}
	return out
}

func (s *server) listBundles(ctx context.Context, options metav1.ListOptions, into *certificatesv1beta1.ClusterTrustBundleList) error {
	if err := s.call(ctx, "list", "clustertrustbundles"); err != nil {
		return err
	}
	selector, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return err
	}
	byLabel, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return err
	}
	for _, o := range s.all("clustertrustbundles/") {
		b := o.(*certificatesv1beta1.ClusterTrustBundle)
		if selector.Matches(fields.Set{"spec.signerName": b.Spec.SignerName}) && byLabel.Matches(labels.Set(b.Labels)) {
			into.Items = append(into.Items, *b)
		}
	}
	return nil
}

func (s *server) Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	name, err := nameOf(r, options)
	if err != nil {
		return nil, err
	}
	path := pathOf(r.String(), namespace, name)
	if err := s.call(ctx, "watch", path); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options = append(s.options, options)
	from, err := strconv.Atoi(options.ResourceVersion)
	if err != nil || options.TimeoutSeconds == nil {
		return nil, apierrors.NewBadRequest("a watch needs a version and a timeout")
	}
	w := &stream{RaceFreeFakeWatcher: watch.NewRaceFreeFake(), s: s, path: path}
	if from < s.compacted {
		status := apierrors.NewResourceExpired("too old resource version").Status()
		w.Error(&status)
	} else if o := s.objects[path]; o != nil && atoi(o.GetResourceVersion()) > from {
		w.Modify(copyOf(o))
	} else if s.gone[path] > from {
		w.Delete(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: strconv.Itoa(s.gone[path])}})
	}
	s.streams[w] = struct{}{}
	w.end = time.AfterFunc(time.Duration(*options.TimeoutSeconds)*time.Second, w.Stop)
	return w, nil
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func (s *server) Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error {
	if err := s.call(ctx, "create", pathOf(r.String(), namespace, name)+"/"+subresource); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	request, answer := object.(*authenticationv1.TokenRequest), into.(*authenticationv1.TokenRequest)
	s.request = request.DeepCopy()
	request.DeepCopyInto(answer)
	if s.tokenLife != 0 {
		answer.Spec.ExpirationSeconds = &s.tokenLife
	}
	s.asked++
	answer.Status.Token = "token " + strconv.Itoa(s.asked)
	answer.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*answer.Spec.ExpirationSeconds) * time.Second))
	return nil
}
