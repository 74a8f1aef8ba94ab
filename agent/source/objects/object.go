// Package objects reads the objects that pods reference by name: ConfigMaps,
// Secrets, PersistentVolumeClaims, PersistentVolumes, RuntimeClasses, service
// account tokens and trust bundles.
//
// Folder reads the first five from local files. That is an extension of
// tinylet: with it, static pods can use configuration and claims without an API
// server. Tokens and trust bundles exist only with an API server; for them
// Folder returns ErrNoServer.
package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
)

// Reader reads objects by namespace and name. If an object does not exist, the
// error satisfies errors.IsNotFound of k8s.io/apimachinery/pkg/api/errors;
// after any other error it is unknown whether it exists. The objects are shared
// and must not be modified. All methods are safe for concurrent use and may
// block on the disk or the network until ctx ends.
type Reader interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
	// Token returns a token of the pod's service account that is bound to the
	// pod, and its expiration time. An empty audience means that of the API
	// server. The same token is returned until a fifth of its lifetime is left
	// or it is a day old, so callers may call Token as often as they need.
	Token(ctx context.Context, p *v1.Pod, audience string, expiration time.Duration) (token string, expires time.Time, err error)
	// TrustBundle returns the selected trust anchors in PEM.
	TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (pem string, err error)
}

// ErrNoServer means that the requested item cannot be read from files.
var ErrNoServer = errors.New("needs an API server")

// The kinds of objects that have a name.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindClaim     = "PersistentVolumeClaim"
	KindVolume    = "PersistentVolume"
	KindClass     = "RuntimeClass"
)

// clusterScoped reports whether objects of a kind are cluster-scoped.
func clusterScoped(kind string) bool { return kind == KindVolume || kind == KindClass }

// Key names one object. Namespace is empty for a cluster-scoped object.
type Key struct{ Kind, Namespace, Name string }

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// resource returns the name of the object's kind in errors, in the singular as in
// the kubelet (pkg/kubelet/util/manager).
func (k Key) resource() string { return strings.ToLower(k.Kind) }

// NotFound returns the error for an object that does not exist.
func NotFound(k Key) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: k.resource()}, k.Name)
}

// Object is an object of one of the kinds.
type Object interface {
	metav1.Object
	runtime.Object
}

// Getter returns the object of a key. It is the part of a Reader that reads objects by
// name.
type Getter func(ctx context.Context, k Key) (Object, error)

// ConfigMap implements Reader.
func (g Getter) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return get[*v1.ConfigMap](ctx, g, Key{KindConfigMap, namespace, name})
}

// Secret implements Reader.
func (g Getter) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return get[*v1.Secret](ctx, g, Key{KindSecret, namespace, name})
}

// PersistentVolumeClaim implements Reader.
func (g Getter) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return get[*v1.PersistentVolumeClaim](ctx, g, Key{KindClaim, namespace, name})
}

// PersistentVolume implements Reader.
func (g Getter) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return get[*v1.PersistentVolume](ctx, g, Key{KindVolume, "", name})
}

// RuntimeClass implements Reader.
func (g Getter) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return get[*nodev1.RuntimeClass](ctx, g, Key{KindClass, "", name})
}

func get[T Object](ctx context.Context, g Getter, k Key) (T, error) {
	o, err := g(ctx, k)
	typed, ok := o.(T)
	if err == nil && !ok {
		err = fmt.Errorf("%s: unexpected object %T", k, o)
	}
	return typed, err
}

// Get reads an object by its key, whose kind must be one of the constants.
func Get(ctx context.Context, r Reader, k Key) (Object, error) {
	switch k.Kind {
	case KindConfigMap:
		return r.ConfigMap(ctx, k.Namespace, k.Name)
	case KindSecret:
		return r.Secret(ctx, k.Namespace, k.Name)
	case KindClaim:
		return r.PersistentVolumeClaim(ctx, k.Namespace, k.Name)
	case KindVolume:
		return r.PersistentVolume(ctx, k.Name)
	}
	return r.RuntimeClass(ctx, k.Name)
}

// PodReferences reports whether a pod's spec references an object. Every pod with a
// claim counts as referencing a PersistentVolume, since only the claim names the
// volume.
func PodReferences(p *v1.Pod, k Key) bool {
	found := false
	EachReference(p, func(r Key) { found = found || r == k || r.Kind == KindClaim && k.Kind == KindVolume })
	return found
}

// EachReference calls visit with each object that a pod's spec references, perhaps
// more than once. PersistentVolumes are not included, since only the claims name them.
func EachReference(p *v1.Pod, visit func(Key)) {
	add := func(kind, name string) {
		if name != "" {
			visit(Key{kind, p.Namespace, name})
		}
	}
	if class := ptr.Deref(p.Spec.RuntimeClassName, ""); class != "" {
		visit(Key{KindClass, "", class})
	}
	for i := range p.Spec.Volumes {
		volumeReferences(&p.Spec.Volumes[i], add)
	}
	for c := range pod.Containers(&p.Spec) {
		environmentReferences(c, add)
	}
	for _, secret := range p.Spec.ImagePullSecrets {
		add(KindSecret, secret.Name)
	}
}

func volumeReferences(v *v1.Volume, add func(kind, name string)) {
	switch {
	case v.PersistentVolumeClaim != nil:
		add(KindClaim, v.PersistentVolumeClaim.ClaimName)
	case v.ConfigMap != nil:
		add(KindConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		add(KindSecret, v.Secret.SecretName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(KindConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(KindSecret, s.Secret.Name)
			}
		}
	}
}

func environmentReferences(c *v1.Container, add func(kind, name string)) {
	for _, e := range c.EnvFrom {
		if e.ConfigMapRef != nil {
			add(KindConfigMap, e.ConfigMapRef.Name)
		}
		if e.SecretRef != nil {
			add(KindSecret, e.SecretRef.Name)
		}
	}
	for i := range c.Env {
		from := ptr.Deref(c.Env[i].ValueFrom, v1.EnvVarSource{})
		if from.ConfigMapKeyRef != nil {
			add(KindConfigMap, from.ConfigMapKeyRef.Name)
		}
		if from.SecretKeyRef != nil {
			add(KindSecret, from.SecretKeyRef.Name)
		}
	}
}

// TrustBundles yields the selections of trust bundles in the pod's volumes.
func TrustBundles(p *v1.Pod) iter.Seq[*v1.ClusterTrustBundleProjection] {
	return func(yield func(*v1.ClusterTrustBundleProjection) bool) {
		for i := range p.Spec.Volumes {
			for _, s := range ptr.Deref(p.Spec.Volumes[i].Projected, v1.ProjectedVolumeSource{}).Sources {
				if s.ClusterTrustBundle != nil && !yield(s.ClusterTrustBundle) {
					return
				}
			}
		}
	}
}

// Same reports whether two versions of an object, each of which may be nil, are equal
// for a pod. The metadata of a ConfigMap or Secret is ignored: a lock kept in an
// annotation changes every few seconds.
func Same(a, b Object) bool {
	switch a := a.(type) {
	case *v1.ConfigMap:
		b, ok := b.(*v1.ConfigMap)
		return ok && maps.Equal(a.Data, b.Data) && maps.EqualFunc(a.BinaryData, b.BinaryData, bytes.Equal)
	case *v1.Secret:
		b, ok := b.(*v1.Secret)
		return ok && a.Type == b.Type && maps.EqualFunc(a.Data, b.Data, bytes.Equal)
	}
	return reflect.DeepEqual(a, b)
}
