package offline

import (
	"cmp"
	"context"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// APIReader reads objects and Services from the API server.
type APIReader interface {
	objects.Reader
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
}

// Reader reads through to another reader and stores its answers in the journal
// while an admitted pod references them. If the other reader fails, Reader
// returns the last value in the journal. NotFound from the other reader is an
// answer and is returned. Store.Reader creates it.
//
// A read of an object that the journal has waits for the other reader only so
// long: until the API server has first responded, all reads share a timeout of
// 2 s, which begins with Open and again every 30 s. After that each read has 5 s.
// For 30 s after a timeout, reads wait for 100 ms. While Config.MayRead denies it,
// they do not read from the other reader. A token is returned even if it has
// expired, with its expiration time.
type Reader struct {
	objects.Getter

	store *Store
	next  APIReader
}

var _ objects.Reader = (*Reader)(nil)

// Reader returns a Reader on top of a source, which must read from the API
// server only: local files need no copy, and a successful read of a file does
// not mean that the API server is reachable.
func (s *Store) Reader(next APIReader) *Reader {
	r := &Reader{store: s, next: next}
	r.Getter = r.get
	return r
}

func (r *Reader) get(ctx context.Context, k objects.Key) (objects.Object, error) {
	m, err := readThrough(ctx, r.store, key{k.Kind, k.Namespace, k.Name}, func(ctx context.Context) (message, error) {
		o, err := objects.Get(ctx, r.next, k)
		m, _ := o.(message)
		return m, err
	})
	o, _ := m.(objects.Object)
	return o, err
}

// Token implements objects.Reader.
func (r *Reader) Token(ctx context.Context, p *v1.Pod, audience string, expiration time.Duration) (string, time.Time, error) {
	k := tokenKey(p.UID, audience, expiration)
	status, err := readThrough(ctx, r.store, k, func(ctx context.Context) (*authenticationv1.TokenRequestStatus, error) {
		token, expires, err := r.next.Token(ctx, p, audience, expiration)
		if err != nil {
			return nil, err
		}
		return &authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires)}, nil
	})
	if err != nil {
		return "", time.Time{}, err
	}
	return status.Token, status.ExpirationTimestamp.Time, nil
}

// bundleData is the key of the trust anchors in a ConfigMap.
const bundleData = "pem"

// TrustBundle implements objects.Reader.
func (r *Reader) TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (string, error) {
	k, err := bundleKey(source)
	if err != nil {
		return "", err
	}
	bundle, err := readThrough(ctx, r.store, k, func(ctx context.Context) (*v1.ConfigMap, error) {
		pem, err := r.next.TrustBundle(ctx, source)
		if err != nil {
			return nil, err
		}
		return &v1.ConfigMap{Data: map[string]string{bundleData: pem}}, nil
	})
	if err != nil {
		return "", err
	}
	return bundle.Data[bundleData], nil
}

// Services returns the services of a namespace. Services from the journal are sorted by
// name and contain only the fields from which environment variables are derived.
func (r *Reader) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	var answered []*v1.Service
	list, err := readThrough(ctx, r.store, key{kindServices, namespace, ""}, func(ctx context.Context) (*v1.ServiceList, error) {
		var err error
		if answered, err = r.next.Services(ctx, namespace); err != nil {
			return nil, err
		}
		return listOf(answered), nil
	})
	if err != nil || answered != nil {
		return answered, err
	}
	services := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = &list.Items[i]
	}
	return services, nil
}

func listOf(services []*v1.Service) *v1.ServiceList {
	list := &v1.ServiceList{Items: make([]v1.Service, len(services))}
	for i, s := range services {
		list.Items[i] = v1.Service{
			ObjectMeta: name(&s.ObjectMeta),
			Spec:       v1.ServiceSpec{Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP, ClusterIPs: s.Spec.ClusterIPs, Ports: s.Spec.Ports},
		}
	}
	slices.SortFunc(list.Items, func(a, b v1.Service) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
