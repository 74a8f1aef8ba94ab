// Package objects answers what pods refer to by name: ConfigMaps, Secrets,
// PersistentVolumeClaims, PersistentVolumes, RuntimeClasses, service account
// tokens and trust anchors.
//
// Folder reads the first five from local files. That is an extension of
// tinylet's own: with it, pods from manifests can use configuration and
// claims though there is no API server. What only a server can make, tokens
// and trust bundles, it refuses with ErrNoServer.
package objects

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reader answers objects by namespace and name. What does not exist is an
// error for which errors.IsNotFound of k8s.io/apimachinery/pkg/api/errors
// holds; any other error says that it is not known. The objects are shared:
// nobody changes them. All methods may be called at once and may block on the
// disk or the network until ctx ends.
type Reader interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// Token answers a token of the pod's service account that is bound to the
	// pod, and when it ends. An empty audience is the API server's own. The
	// same token is answered until a fifth of its life is left or it is a day
	// old, so that a caller may ask as often as it likes.
	Token(ctx context.Context, p *v1.Pod, audience string, expiration time.Duration) (token string, expires time.Time, err error)
	// TrustBundle answers the selected trust anchors in PEM.
	TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (pem string, err error)
}

// ErrNoServer says that what was asked for cannot be had from files.
var ErrNoServer = errors.New("needs an API server")

// The kinds that a Folder reads.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindClaim     = "PersistentVolumeClaim"
	KindVolume    = "PersistentVolume"
	KindClass     = "RuntimeClass"
)

// resources name the kinds in errors as the kubelet has them, in the singular
// (pkg/kubelet/util/manager).
var resources = map[string]string{
	KindConfigMap: "configmap",
	KindSecret:    "secret",
	KindClaim:     "persistentvolumeclaim",
	KindVolume:    "persistentvolume",
	KindClass:     "runtimeclass",
}

// global says whether objects of a kind belong to no namespace.
func global(kind string) bool { return kind == KindVolume || kind == KindClass }

// key names one object. namespace is empty for one that belongs to none.
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
