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
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// The kinds that a Folder reads.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindClaim     = "PersistentVolumeClaim"
	KindVolume    = "PersistentVolume"
	KindClass     = "RuntimeClass"
)

// resources are the names of the kinds in errors, in the singular as in the
// kubelet (pkg/kubelet/util/manager).
var resources = map[string]string{
	KindConfigMap: "configmap",
	KindSecret:    "secret",
	KindClaim:     "persistentvolumeclaim",
	KindVolume:    "persistentvolume",
	KindClass:     "runtimeclass",
}

// clusterScoped reports whether objects of a kind are cluster-scoped.
func clusterScoped(kind string) bool { return kind == KindVolume || kind == KindClass }

// key names one object. namespace is empty for a cluster-scoped object.
type key struct {
	kind, namespace, name string
}

func (k key) String() string {
	if k.namespace == "" {
		return k.kind + " " + k.name
	}
	return k.kind + " " + k.namespace + "/" + k.name
}

func notFound(k key) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resources[k.kind]}, k.name)
}
