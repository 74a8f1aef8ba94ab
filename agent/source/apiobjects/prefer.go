package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// Source is an objects.Reader that also reads runtime classes. *objects.Folder
// and *Objects implement it.
type Source interface {
	objects.Reader
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
}

// RuntimeHandler returns the runtime handler of a pod's RuntimeClass; "" is the runtime's default.
func RuntimeHandler(ctx context.Context, from Source, pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	class, err := from.RuntimeClass(ctx, *pod.Spec.RuntimeClassName)
	if err != nil {
		return "", fmt.Errorf("get the pod's RuntimeClass: %w", err)
	}
	return class.Handler, nil
}

// Chain chains two sources. Local files take precedence, also for pods from
// the API server: second is read only if an object does not exist in first or
// needs an API server.
func Chain(first, second Source) Source { return &chain{first, second} }

type chain struct{ first, second Source }

// elsewhere reports whether the second source must be read.
func elsewhere(err error) bool {
	return err != nil && (apierrors.IsNotFound(err) || errors.Is(err, objects.ErrNoServer))
}

func (p *chain) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	found, err := p.first.ConfigMap(ctx, namespace, name)
	if elsewhere(err) {
		return p.second.ConfigMap(ctx, namespace, name)
	}
	return found, err
}

func (p *chain) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	found, err := p.first.Secret(ctx, namespace, name)
	if elsewhere(err) {
		return p.second.Secret(ctx, namespace, name)
	}
	return found, err
}

func (p *chain) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	found, err := p.first.PersistentVolumeClaim(ctx, namespace, name)
	if elsewhere(err) {
		return p.second.PersistentVolumeClaim(ctx, namespace, name)
	}
	return found, err
}

func (p *chain) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	found, err := p.first.PersistentVolume(ctx, name)
	if elsewhere(err) {
		return p.second.PersistentVolume(ctx, name)
	}
	return found, err
}

func (p *chain) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	found, err := p.first.RuntimeClass(ctx, name)
	if elsewhere(err) {
		return p.second.RuntimeClass(ctx, name)
	}
	return found, err
}

func (p *chain) Token(ctx context.Context, of *v1.Pod, audience string, expiration time.Duration) (string, time.Time, error) {
	token, expires, err := p.first.Token(ctx, of, audience, expiration)
	if elsewhere(err) {
		return p.second.Token(ctx, of, audience, expiration)
	}
	return token, expires, err
}

func (p *chain) TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (string, error) {
	pem, err := p.first.TrustBundle(ctx, source)
	if elsewhere(err) {
		return p.second.TrustBundle(ctx, source)
	}
	return pem, err
}
