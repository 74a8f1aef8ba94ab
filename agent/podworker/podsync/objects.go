package podsync

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
)

// reasonPullSecret is the kubelet's event reason for a missing pull secret
// (pkg/kubelet/kubelet_pods.go).
const reasonPullSecret = "FailedToRetrieveImagePullSecret"

// objectsOf fetches the ConfigMaps and Secrets that a container's environment
// refers to. It omits objects that do not exist, and fails if it cannot find
// out whether one exists.
func (st *starter) objectsOf(ctx context.Context, c *v1.Container) (map[string]*v1.ConfigMap, map[string]*v1.Secret, error) {
	mapNames, secretNames := criconfig.EnvRefs(c)
	configMaps, err := fetch(ctx, mapNames, st.pod.Namespace, st.Objects.ConfigMap)
	if err != nil {
		return nil, nil, fmt.Errorf("fetch ConfigMap: %w", err)
	}
	secrets, err := fetch(ctx, secretNames, st.pod.Namespace, st.Objects.Secret)
	if err != nil {
		return nil, nil, fmt.Errorf("fetch Secret: %w", err)
	}
	return configMaps, secrets, nil
}

// services returns the Services for the environment variables of the pod's
// containers. It returns none for a static pod, whose environment must not depend on the
// connection to the API server.
func (st *starter) services(ctx context.Context) ([]*v1.Service, error) {
	if st.Services == nil || pod.IsStatic(st.pod) {
		return nil, nil
	}
	var out []*v1.Service
	for _, namespace := range criconfig.ServiceNamespaces(st.pod) {
		services, err := st.Services(ctx, namespace)
		if err != nil {
			return nil, fmt.Errorf("list services of namespace %s: %w", namespace, err)
		}
		out = append(out, services...)
	}
	return out, nil
}

// fetch returns the named objects that exist, by name. It returns the first other error.
func fetch[T any](ctx context.Context, names []string, namespace string, get func(ctx context.Context, namespace, name string) (*T, error)) (map[string]*T, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out := make(map[string]*T, len(names))
	for _, name := range names {
		object, err := get(ctx, namespace, name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("%s/%s: %w", namespace, name, err)
		default:
			out[name] = object
		}
	}
	return out, nil
}

// pullSecrets returns the pod's image pull secrets that can be read. For each other one it
// emits an event: the pull may succeed without it.
func (st *starter) pullSecrets(ctx context.Context) []*v1.Secret {
	var out []*v1.Secret
	for _, ref := range st.pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		secret, err := st.Objects.Secret(ctx, st.pod.Namespace, ref.Name)
		if err != nil {
			st.Events.Warning(st.ref, reasonPullSecret, fmt.Sprintf("Unable to retrieve image pull secret %s; attempting to pull the image may not succeed: %v", ref.Name, err))
			continue
		}
		out = append(out, secret)
	}
	return out
}
