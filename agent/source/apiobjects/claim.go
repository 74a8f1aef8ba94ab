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

// How long fetched objects count, unless a pod comes that refers to them (see
// Refer). A node may not watch claims and volumes, and the kubelet asks for
// them at each look at a pod's volumes.
const (
	claimAge   = time.Minute
	classAge   = 5 * time.Minute
	serviceAge = time.Minute
)

// PersistentVolumeClaim answers a claim as it was a minute ago at most, if the
// server can be reached.
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

// PersistentVolume answers a volume as it was a minute ago at most, if the
// server can be reached.
func (o *Objects) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return o.volumes.read(ctx, key{objects.KindVolume, "", name})
}

// RuntimeClass answers a runtime class as it was five minutes ago at most, if
// the server can be reached.
func (o *Objects) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return o.classes.read(ctx, key{objects.KindClass, "", name})
}

// Services answers the services of a namespace as they were a minute ago at
// most, and not before a pod of it was first referred to, if the server can be
// reached. Nobody changes them.
func (o *Objects) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	return o.services.read(ctx, namespace)
}

func (o *Objects) fetchClaim(ctx context.Context, k key) (*v1.PersistentVolumeClaim, validity, error) {
	claim := new(v1.PersistentVolumeClaim)
	if err := o.config.API.Get(ctx, apiclient.Claims, k.namespace, k.name, claim); err != nil {
		return nil, validity{}, fmt.Errorf("%s: %w", k, err)
	}
	slim(claim)
	if claim.Status.Phase != v1.ClaimBound {
		return claim, validFor(recently), nil // it is about to be
	}
	return claim, validFor(claimAge), nil
}

func (o *Objects) fetchVolume(ctx context.Context, k key) (*v1.PersistentVolume, validity, error) {
	volume := new(v1.PersistentVolume)
	if err := o.config.API.Get(ctx, apiclient.Volumes, "", k.name, volume); err != nil {
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

// fetchServices asks for the most recent list: one from a server's memory may be
// older than the pod that it is for. The pod's own resource version does not
// help, which says nothing of services where the server keeps them in another
// etcd.
func (o *Objects) fetchServices(ctx context.Context, namespace string) ([]*v1.Service, validity, error) {
	var list v1.ServiceList
	if err := o.config.API.List(ctx, apiclient.Services, namespace, metav1.ListOptions{}, &list); err != nil {
		return nil, validity{}, fmt.Errorf("services of namespace %s: %w", namespace, err)
	}
	out := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
		slim(out[i])
	}
	return out, validFor(serviceAge), nil
}
