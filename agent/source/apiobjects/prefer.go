package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// RuntimeHandler returns the runtime handler of a pod's RuntimeClass; "" is the runtime's default.
func RuntimeHandler(ctx context.Context, from objects.Reader, pod *v1.Pod) (string, error) {
	if pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName == "" {
		return "", nil
	}
	class, err := from.RuntimeClass(ctx, *pod.Spec.RuntimeClassName)
	if err != nil {
		return "", fmt.Errorf("get the pod's RuntimeClass: %w", err)
	}
	return class.Handler, nil
}

// Chain chains two readers. Local files take precedence, also for pods from
// the API server: second is read only if an object does not exist in first or
// needs an API server.
func Chain(first, second objects.Reader) objects.Reader {
	get := func(ctx context.Context, k key) (objects.Object, error) {
		found, err := objects.Get(ctx, first, k)
		if elsewhere(err) {
			return objects.Get(ctx, second, k)
		}
		return found, err
	}
	return &chain{get, first, second}
}

type chain struct {
	objects.Getter
	first, second objects.Reader
}

// elsewhere reports whether the second reader must be read.
func elsewhere(err error) bool {
	return err != nil && (apierrors.IsNotFound(err) || errors.Is(err, objects.ErrNoServer))
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
