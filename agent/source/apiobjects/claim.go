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

// PersistentVolumeClaim returns a claim that is at most a minute old, or older
// if the API server is unreachable.
func (o *Objects) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	k := key{objects.KindClaim, namespace, name}
	o.mu.Lock()
	_, local := o.locals[k]
	o.mu.Unlock()
	if local {
		return nil, localOnly(k)
	}
	return o.claims.read(ctx, k)
}

// PersistentVolume returns a volume that is at most a minute old, or older if
// the API server is unreachable.
func (o *Objects) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return o.volumes.read(ctx, key{objects.KindVolume, "", name})
}

// RuntimeClass returns a runtime class that is at most five minutes old, or
// older if the API server is unreachable.
func (o *Objects) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return o.classes.read(ctx, key{objects.KindClass, "", name})
}

// Services returns the services of a namespace. The list is at most a minute
// old and not older than the first reference by a pod of the namespace, unless
// the API server is unreachable. The services must not be modified.
func (o *Objects) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	return o.services.read(ctx, namespace)
}

func (o *Objects) fetchClaim(ctx context.Context, k key) (*v1.PersistentVolumeClaim, validity, error) {
	claim := new(v1.PersistentVolumeClaim)
	if err := o.config.API.Get(ctx, apiclient.PersistentVolumeClaims, k.namespace, k.name, claim); err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", k, err)
	}
	slim(claim)
	if claim.Status.Phase != v1.ClaimBound {
		return claim, validFor(recently), nil // it will soon be bound
	}
	return claim, validFor(claimAge), nil
}

func (o *Objects) fetchVolume(ctx context.Context, k key) (*v1.PersistentVolume, validity, error) {
	volume := new(v1.PersistentVolume)
	if err := o.config.API.Get(ctx, apiclient.PersistentVolumes, "", k.name, volume); err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", k, err)
	}
	slim(volume)
	return volume, validFor(claimAge), nil
}

func (o *Objects) fetchClass(ctx context.Context, k key) (*nodev1.RuntimeClass, validity, error) {
	class := new(nodev1.RuntimeClass)
	if err := o.config.API.Get(ctx, apiclient.RuntimeClasses, "", k.name, class); err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", k, err)
	}
	slim(class)
	return class, validFor(classAge), nil
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
