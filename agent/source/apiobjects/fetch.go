package apiobjects

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// How long fetched objects are cached, unless a new pod references them. A node
// may not watch claims and volumes; the kubelet gets them each time it
// reconciles a pod's volumes.
const (
	claimAge   = time.Minute
	classAge   = 5 * time.Minute
	serviceAge = time.Minute
)

// isWatched reports whether objects of the kind are watched while pods reference
// them.
func isWatched(k key) bool { return k.Kind == objects.KindConfigMap || k.Kind == objects.KindSecret }

// fetch fetches an object. A ConfigMap or Secret that no known pod references is
// cached only until the pod is expected to be known.
func (o *Objects) fetch(ctx context.Context, k key) (objects.Object, validity, error) {
	var resource apiclient.Resource
	var into objects.Object
	age := recently
	switch k.Kind {
	case objects.KindConfigMap:
		resource, into = apiclient.ConfigMaps, new(v1.ConfigMap)
	case objects.KindSecret:
		resource, into = apiclient.Secrets, new(v1.Secret)
	case objects.KindClaim:
		resource, into, age = apiclient.PersistentVolumeClaims, new(v1.PersistentVolumeClaim), claimAge
	case objects.KindVolume:
		resource, into, age = apiclient.PersistentVolumes, new(v1.PersistentVolume), claimAge
	case objects.KindClass:
		resource, into, age = apiclient.RuntimeClasses, new(nodev1.RuntimeClass), classAge
	}
	if err := o.config.API.Get(ctx, resource, k.Namespace, k.Name, into); err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", k, err)
	}
	slim(into)
	if claim, ok := into.(*v1.PersistentVolumeClaim); ok && claim.Status.Phase != v1.ClaimBound {
		age = recently // it will soon be bound
	}
	return into, validFor(age), nil
}

// Services returns the services of a namespace. The list is at most a minute
// old and not older than the first reference by a pod of the namespace, unless
// the API server is unreachable. The services must not be modified.
func (o *Objects) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	return o.services.read(ctx, namespace)
}

// fetchServices requests the most recent list, since one from an API server's
// cache may be older than the pod that it is for. The pod's resource version
// does not help: it is not comparable if services are stored in another etcd.
func (o *Objects) fetchServices(ctx context.Context, namespace string) ([]*v1.Service, validity, error) {
	var list v1.ServiceList
	if err := o.config.API.List(ctx, apiclient.Services, namespace, metav1.ListOptions{}, &list); err != nil {
		return nil, validity{}, fmt.Errorf("list services of namespace %s: %w", namespace, err)
	}
	out := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
		slim(out[i])
	}
	return out, validFor(serviceAge), nil
}
