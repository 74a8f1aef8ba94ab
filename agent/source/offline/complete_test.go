package offline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestComplete is a journal that was started while a pod ran: the objects that only the
// creation of a container reads are read nevertheless, and then there without network.
func TestComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, Config{Dir: t.TempDir()})
		api := newServer()
		for _, namespace := range []string{"ns", "default"} {
			api.set(namespace, "services", "1", "10.0.0.1")
		}
		api.set("ns", "env", "1", "value")
		optional := true
		p := aPod("u1", func(p *v1.Pod) {
			p.Spec.Volumes = nil
			p.Spec.ImagePullSecrets = nil
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "env"}}},
				{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: &optional}},
			}
		})
		mustAdmit(t, s, p)
		r, recovered := s.Reader(api), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, func() <-chan struct{} { return recovered }) }()

		api.state(false, errLink)
		s.Complete("u1")
		time.Sleep(time.Hour)
		if got := api.requests(); got < 12 || got > 40 {
			t.Errorf("%d requests in an hour without network", got)
		}
		api.state(false, nil)
		close(recovered)
		time.Sleep(time.Second)
		asked := api.requests()
		s.Complete("u1")
		mustAdmit(t, s, p)
		s.Complete("u1")
		time.Sleep(time.Hour)
		if more := api.requests() - asked; more > 0 {
			t.Errorf("%d requests for a complete pod", more)
		}
		cancel()
		must(t, <-done)

		s = reopened(t, s)
		api.state(false, errLink)
		r = s.Reader(api)
		for _, namespace := range []string{"ns", "default"} {
			if services, err := r.Services(t.Context(), namespace); err != nil || len(services) != 1 {
				t.Errorf("Services of %s: %v, %v", namespace, services, err)
			}
		}
		if m, err := r.ConfigMap(t.Context(), "ns", "env"); err != nil || m.Data["k"] != "value" {
			t.Errorf("ConfigMap: %v, %v", m, err)
		}
		must(t, s.Close())
	})
}

// TestCompleteRefused has a pod whose objects the API server refuses: the others are complete
// nevertheless.
func TestCompleteRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, Config{Dir: t.TempDir()})
		api := &refusing{server: newServer(), namespace: "secret"}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		r := s.Reader(api)
		go func() { done <- r.Run(ctx, nil) }()
		const others = 20
		for i := range others + 1 {
			namespace := fmt.Sprint("ns-", i)
			if i == others/2 {
				namespace = api.namespace
			}
			api.set(namespace, "services", "1", "10.0.0.1")
			p := aPod(namespace, func(p *v1.Pod) { p.Namespace, p.Spec.Volumes, p.Spec.ImagePullSecrets = namespace, nil, nil })
			mustAdmit(t, s, p)
			s.Complete(p.UID)
		}
		time.Sleep(time.Second)
		for i := range others + 1 {
			if i != others/2 && !s.knows(key{kindServices, fmt.Sprint("ns-", i), ""}) {
				t.Errorf("the Services of namespace ns-%d are missing", i)
			}
		}
		cancel()
		must(t, <-done)
		must(t, s.Close())
	})
}

// refusing is a server that forbids to list the Services of one namespace.
type refusing struct {
	*server
	namespace string
}

func (r *refusing) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	if namespace == r.namespace {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no access"))
	}
	return r.server.Services(ctx, namespace)
}
