package offline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/source/objects"
)

// Objects answers what pods refer to: an objects.Reader, and runtime classes.
type Objects interface {
	objects.Reader
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
}

// serviceLister is what an Objects may answer beside.
type serviceLister interface {
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
}

// Reader answers what another one does, and keeps it in the journal while a
// pod that was admitted refers to it. Where the other fails, the journal
// answers with what it had last, but for what the other said is not there:
// that there is none is an answer. Made by Store.Reader.
//
// A read of what the journal has waits for the other no longer than
// Config.Patience, or 5 s once it has answered, and hardly at all for half a
// minute after a wait in vain. Until Config.Ask it does not wait at all, and
// the other is not asked. A token is answered also when it has expired, with the time
// at which it did.
type Reader struct {
	store *Store
	next  Objects
}

var _ Objects = (*Reader)(nil)

// Reader makes a Reader upon another, which has to be that of the API server
// alone: files of the board need no copy, and that they answer does not tell
// that the server does.
func (s *Store) Reader(next Objects) *Reader { return &Reader{store: s, next: next} }

// ConfigMap implements objects.Reader.
func (r *Reader) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return through(ctx, r.store, key{objects.KindConfigMap, namespace, name}, func(ctx context.Context) (*v1.ConfigMap, error) {
		return r.next.ConfigMap(ctx, namespace, name)
	})
}

// Secret implements objects.Reader.
func (r *Reader) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return through(ctx, r.store, key{objects.KindSecret, namespace, name}, func(ctx context.Context) (*v1.Secret, error) {
		return r.next.Secret(ctx, namespace, name)
	})
}

// PersistentVolumeClaim implements objects.Reader.
func (r *Reader) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return through(ctx, r.store, key{objects.KindClaim, namespace, name}, func(ctx context.Context) (*v1.PersistentVolumeClaim, error) {
		return r.next.PersistentVolumeClaim(ctx, namespace, name)
	})
}

// PersistentVolume implements objects.Reader.
func (r *Reader) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return through(ctx, r.store, key{objects.KindVolume, "", name}, func(ctx context.Context) (*v1.PersistentVolume, error) {
		return r.next.PersistentVolume(ctx, name)
	})
}

// RuntimeClass implements Objects.
func (r *Reader) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return through(ctx, r.store, key{objects.KindClass, "", name}, func(ctx context.Context) (*nodev1.RuntimeClass, error) {
		return r.next.RuntimeClass(ctx, name)
	})
}

// Token implements objects.Reader.
func (r *Reader) Token(ctx context.Context, p *v1.Pod, audience string, expiration time.Duration) (string, time.Time, error) {
	k := tokenKey(p.UID, audience, expiration)
	status, err := through(ctx, r.store, k, func(ctx context.Context) (*authenticationv1.TokenRequestStatus, error) {
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

// bundleData is where a ConfigMap has the anchors.
const bundleData = "pem"

// TrustBundle implements objects.Reader.
func (r *Reader) TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (string, error) {
	k, err := bundleKey(source)
	if err != nil {
		return "", err
	}
	bundle, err := through(ctx, r.store, k, func(ctx context.Context) (*v1.ConfigMap, error) {
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

// Services answers the services of a namespace, if the Reader's other does;
// from the journal with what environment variables are made of, by name.
func (r *Reader) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	next, ok := r.next.(serviceLister)
	if !ok {
		return nil, fmt.Errorf("a list of services %w", objects.ErrNoServer)
	}
	var answered []*v1.Service
	list, err := through(ctx, r.store, key{kindServices, namespace, ""}, func(ctx context.Context) (*v1.ServiceList, error) {
		var err error
		if answered, err = next.Services(ctx, namespace); err != nil {
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
