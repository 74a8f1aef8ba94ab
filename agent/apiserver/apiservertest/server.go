// Package apiservertest is an API server in memory, for tests. No binary links it.
//
// A Server owns a store of Kubernetes objects with one sequence of resource versions.
// It implements get, list (selectors, pages, resource versions that are too large),
// watch (from any version, bookmark at the end, 410 Gone after Compact), create, patch
// (strategic merge and merge patches; status is separate from the rest), and delete
// (grace period, UID precondition, finalizers). It also serves TokenRequests,
// TokenReviews, and SubjectAccessReviews. It records the requests, and Faults make
// them fail, block or lose their responses.
//
// Tests call it in three ways. The methods of Client are those of *apiclient.Client and
// need no network, so that they work in a bubble of testing/synctest. ServeHTTP serves
// the same requests to the real client, in JSON. Put, Remove and the like act for
// other clients.
//
// It has no update, server-side apply, watch of initial events, defaults, validation,
// admission, garbage collection or controllers, and it authorizes everything.
// The test decides about CertificateSigningRequests, with an Authority.
package apiservertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch/strategicpatchtest"
	"github.com/tinylet/tinylet/agent/pod"
)

// Object is an object that the server stores.
type Object interface {
	runtime.Object
	metav1.Object
}

// kinds has an empty object of each resource.
var kinds = map[apiclient.Resource]Object{
	apiclient.Pods: &v1.Pod{}, apiclient.Nodes: &v1.Node{}, apiclient.ConfigMaps: &v1.ConfigMap{}, apiclient.Secrets: &v1.Secret{},
	apiclient.Services: &v1.Service{}, apiclient.ServiceAccounts: &v1.ServiceAccount{}, apiclient.CoreEvents: &v1.Event{},
	apiclient.PersistentVolumeClaims: &v1.PersistentVolumeClaim{}, apiclient.PersistentVolumes: &v1.PersistentVolume{},
	apiclient.Leases: &coordinationv1.Lease{}, apiclient.RuntimeClasses: &nodev1.RuntimeClass{}, apiclient.CSINodes: &storagev1.CSINode{},
	apiclient.EndpointSlices:             &discoveryv1.EndpointSlice{},
	apiclient.CertificateSigningRequests: &certificatesv1.CertificateSigningRequest{},
	apiclient.ClusterTrustBundles:        &certificatesv1beta1.ClusterTrustBundle{},
	apiclient.TokenReviews:               &authenticationv1.TokenReview{},
	apiclient.SubjectAccessReviews:       &authorizationv1.SubjectAccessReview{},
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, coordinationv1.AddToScheme, nodev1.AddToScheme, discoveryv1.AddToScheme, storagev1.AddToScheme,
		certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

func kindOf(o runtime.Object) schema.GroupVersionKind {
	all, _, err := scheme().ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	return all[0]
}

func resourceOf(o Object) apiclient.Resource {
	for r, kind := range kinds {
		if reflect.TypeOf(kind) == reflect.TypeOf(o) {
			return r
		}
	}
	panic(fmt.Sprintf("no resource of %T", o))
}

// key identifies a stored object.
type key struct {
	resource        apiclient.Resource
	namespace, name string
}

func keyOf(o Object) key { return key{resourceOf(o), o.GetNamespace(), o.GetName()} }

// change is what a resource version changed; was or is is nil.
type change struct {
	version int
	was, is Object
}

// Server is the API server. Its methods may be called concurrently. Objects that it
// returns are never changed in place, and callers must not change them.
type Server struct {
	Client

	mu       sync.Mutex
	version  int
	oldest   int // versions below are too old to watch from
	objects  map[key]Object
	history  []change
	streams  map[*stream]struct{}
	uids     int
	granted  int // TokenRequests
	calls    []Call
	reported int // calls that Made returned
	inFlight int
	most     int
	faults   Faults
	onChange func([]Object)
	tokens   map[string]authenticationv1.UserInfo
	rights   []right
}

// New returns an empty server.
func New() *Server {
	s := &Server{version: 1, objects: make(map[key]Object), streams: make(map[*stream]struct{})}
	s.Client.server = s
	return s
}

// Put creates or replaces an object and returns the stored copy. An object without
// UID gets a new one, unless it replaces another.
func (s *Server) Put(o Object) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store(copyOf(o))
}

// Remove deletes an object.
func (s *Server) Remove(r apiclient.Resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key{r, namespace, name})
}

// Update changes a copy of an object and stores it.
func Update[T Object](s *Server, namespace, name string, change func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var zero T
	for k, o := range s.objects {
		if o, ok := o.(T); ok && k.namespace == namespace && k.name == name {
			o, _ = copyOf(o).(T)
			change(o)
			s.store(o)
			return
		}
	}
	panic(fmt.Sprintf("no %T %s/%s", zero, namespace, name))
}

// Stored returns an object, nil if there is none.
func Stored[T Object](s *Server, namespace, name string) T {
	for _, o := range All[T](s) {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o
		}
	}
	var none T
	return none
}

// All returns the objects of a type, by namespace and name.
func All[T Object](s *Server) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []T
	for _, o := range s.sorted() {
		if o, ok := o.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// Restore replaces all objects, as from a backup that was taken at a resource version.
// No watch receives that, and versions before are too old to watch from. The objects
// keep their resource versions.
func (s *Server) Restore(version int, all ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.oldest, s.history, s.objects = version, version, nil, make(map[key]Object)
	for _, o := range all {
		s.objects[keyOf(o)] = copyOf(o)
	}
}

// Compact makes all versions before the current one too old to watch from.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest, s.history = s.version, nil
}

// OnChange makes the server call f with all objects after each change, in the order of
// the changes; nil ends that. f must not call the server.
func (s *Server) OnChange(f func(all []Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = f
	s.notify()
}

func (s *Server) notify() {
	if s.onChange != nil {
		s.onChange(s.sorted())
	}
}

func (s *Server) sorted() []Object {
	keys := slices.SortedFunc(maps.Keys(s.objects), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.resource.String(), b.resource.String()), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	all := make([]Object, len(keys))
	for i, k := range keys {
		all[i] = s.objects[k]
	}
	return all
}

func copyOf(o Object) Object {
	c, _ := o.DeepCopyObject().(Object)
	return c
}

// store stores an object, which it owns, under a new version.
func (s *Server) store(o Object) Object {
	k := keyOf(o)
	was := s.objects[k]
	switch {
	case o.GetUID() != "":
	case was != nil:
		o.SetUID(was.GetUID())
	default:
		s.uids++
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	}
	s.objects[k] = o
	s.happened(was, o)
	return o
}

func (s *Server) remove(k key) {
	was := s.objects[k]
	if was == nil {
		return
	}
	delete(s.objects, k)
	s.happened(was, nil)
}

// happened gives a change its version and sends it to the watches.
func (s *Server) happened(was, is Object) {
	s.version++
	if is == nil {
		was = copyOf(was)
		was.SetResourceVersion(strconv.Itoa(s.version))
	} else {
		is.SetResourceVersion(strconv.Itoa(s.version))
	}
	c := change{s.version, was, is}
	s.history = append(s.history, c)
	for w := range s.streams {
		w.changed(c)
	}
	s.notify()
}

// Client sends requests as a user. It has the methods of *apiclient.Client.
type Client struct {
	server *Server
	user   string
}

// As returns a client that acts as a user. The user of Server's own client is "".
func (s *Server) As(user string) Client { return Client{s, user} }

// Get reads one object.
func (c Client) Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error {
	return c.server.serve(ctx, Call{Verb: "get", Resource: r, Namespace: namespace, Name: name, User: c.user}, into,
		func(call Call) (runtime.Object, error) { return c.server.find(call) })
}

// List reads a page of objects.
func (c Client) List(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	call, sel, err := c.selection("list", r, namespace, options)
	if err != nil {
		return err
	}
	return c.server.serve(ctx, call, nil, func(Call) (runtime.Object, error) { return nil, c.server.list(sel, options, into) })
}

// Watch watches objects until ctx ends, the timeout of the options is over, or the
// caller stops it. Without a timeout it does not end.
func (c Client) Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	call, sel, err := c.selection("watch", r, namespace, options)
	if err != nil {
		return nil, err
	}
	var w *stream
	err = c.server.serve(ctx, call, nil, func(Call) (runtime.Object, error) {
		w = c.server.open(ctx, sel, options)
		return nil, nil
	})
	if err != nil {
		if w != nil {
			w.Stop()
		}
		return nil, err
	}
	return w, nil
}

// Create creates an object, or an object of a subresource of the object name.
func (c Client) Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error {
	call := Call{Verb: "create", Resource: r, Namespace: namespace, Name: name, Subresource: subresource, User: c.user, Object: object.DeepCopyObject()}
	if o, ok := object.(Object); ok && name == "" {
		call.Name = o.GetName()
	}
	return c.server.serve(ctx, call, into, c.server.create)
}

// Patch patches an object or its subresource status.
func (c Client) Patch(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error {
	call := Call{Verb: "patch", Resource: r, Namespace: namespace, Name: name, Subresource: subresource, User: c.user, PatchType: kind, Patch: string(patch)}
	return c.server.serve(ctx, call, into, c.server.patch)
}

// Delete deletes an object.
func (c Client) Delete(ctx context.Context, r apiclient.Resource, namespace, name string, options metav1.DeleteOptions) error {
	call := Call{Verb: "delete", Resource: r, Namespace: namespace, Name: name, User: c.user, Delete: options}
	return c.server.serve(ctx, call, nil, c.server.delete)
}

func (s *Server) find(c Call) (Object, error) {
	if o := s.objects[c.key()]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(c.group(), c.Name)
}

func (s *Server) list(sel selector, options metav1.ListOptions, into runtime.Object) error {
	if version, _ := strconv.Atoi(options.ResourceVersion); version > s.version {
		err := apierrors.NewTimeoutError("Too large resource version", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return err
	}
	head, err := meta.ListAccessor(into)
	if err != nil {
		return err
	}
	head.SetResourceVersion(strconv.Itoa(s.version))
	var all []runtime.Object
	for _, o := range s.sorted() {
		at := o.GetNamespace() + "/" + o.GetName()
		if !sel.selects(o) || at <= options.Continue || s.faults.EmptyCache && options.ResourceVersion == "0" {
			continue
		}
		if n := int(options.Limit); n > 0 && len(all) == n {
			last, _ := all[n-1].(Object)
			head.SetContinue(last.GetNamespace() + "/" + last.GetName())
			break
		}
		all = append(all, o.DeepCopyObject())
	}
	return meta.SetList(into, all)
}

func (s *Server) create(c Call) (runtime.Object, error) {
	object := c.Object.DeepCopyObject()
	if s.faults.Admit != nil {
		s.faults.Admit(object)
	}
	switch o := object.(type) {
	case *authenticationv1.TokenRequest:
		s.granted++
		o.Status.Token = fmt.Sprint("token ", s.granted)
		o.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*o.Spec.ExpirationSeconds) * time.Second))
		return o, nil
	case *authenticationv1.TokenReview:
		s.reviewToken(o)
		return o, nil
	case *authorizationv1.SubjectAccessReview:
		s.reviewAccess(o)
		return o, nil
	case *v1.Pod:
		o.Generation, o.Status = 1, v1.PodStatus{Phase: v1.PodPending, QOSClass: pod.QOSClass(o)}
	}
	o, ok := object.(Object)
	switch {
	case !ok || c.Subresource != "" || o.GetNamespace() != c.Namespace || o.GetName() != c.Name || o.GetUID() != "" || o.GetResourceVersion() != "":
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s of %T", c, c.Object))
	case s.objects[c.key()] != nil:
		return nil, apierrors.NewAlreadyExists(c.group(), c.Name)
	}
	o.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	return s.store(o), nil
}

func (s *Server) patch(c Call) (runtime.Object, error) {
	was, err := s.find(c)
	if err != nil {
		return nil, err
	}
	is, err := strategicpatchtest.Apply(was, c.PatchType, []byte(c.Patch))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if is.GetUID() != was.GetUID() {
		return nil, apierrors.NewInvalid(kindOf(is).GroupKind(), c.Name, nil)
	}
	// A request changes the status or the rest, never both.
	keeps := map[string]string{"": "Status", "status": "Spec"}[c.Subresource]
	if field := reflect.ValueOf(is).Elem().FieldByName(keeps); field.IsValid() {
		field.Set(reflect.ValueOf(was).Elem().FieldByName(keeps))
	}
	if s.faults.Admit != nil {
		s.faults.Admit(is)
	}
	return s.store(is), nil
}

func (s *Server) delete(c Call) (runtime.Object, error) {
	was, err := s.find(c)
	if err != nil {
		return nil, err
	}
	if p := c.Delete.Preconditions; p != nil && p.UID != nil && *p.UID != was.GetUID() {
		return nil, apierrors.NewConflict(c.group(), c.Name, errors.New("the UID in the precondition differs"))
	}
	grace := int64(0)
	if p, ok := was.(*v1.Pod); ok && p.Spec.NodeName != "" {
		grace = 30
	}
	if c.Delete.GracePeriodSeconds != nil {
		grace = *c.Delete.GracePeriodSeconds
	}
	if grace == 0 && len(was.GetFinalizers()) == 0 {
		s.remove(c.key())
		return nil, nil
	}
	was = copyOf(was)
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
	was.SetDeletionTimestamp(&at)
	was.SetDeletionGracePeriodSeconds(&grace)
	s.store(was)
	return nil, nil
}

// assign copies an object into another of its type.
func assign(into, from runtime.Object) error {
	to, of := reflect.ValueOf(into), reflect.ValueOf(from)
	if into == nil || from == nil {
		return nil
	}
	if to.Type() != of.Type() {
		return fmt.Errorf("read %T into %T", from, into)
	}
	to.Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
	return nil
}
