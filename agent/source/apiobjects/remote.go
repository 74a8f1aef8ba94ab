package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// API is the server, as *apiclient.Client is. Its methods block on the network
// until their context ends and may be called at once.
type API interface {
	Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error
	List(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions, into runtime.Object) error
	Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error
}

// Config is what Objects need. API and Log are required.
type Config struct {
	API API
	Log *slog.Logger
	// Changed is told of each ConfigMap and Secret whose content changed, came
	// or went, and of the first answer where a read has failed before: the pods
	// that refer to it are to be looked at again. It is called by several
	// goroutines, and while it blocks, the object that it is told of is not
	// followed. It may call the Objects' methods. nil is nobody.
	Changed func(kind, namespace, name string)
	// Recovered ends waits when the server is there again; nil does not.
	Recovered apiclient.Recoveries
}

var (
	errEnded   = errors.New("the agent is ending")
	errUnknown = errors.New("it is not known yet")
	errSlow    = errors.New("the server takes long to answer")
)

// maxLists is how many ConfigMaps and Secrets are listed at once, whose
// answers may be a megabyte each.
const maxLists = 8

// Objects answers objects of the API server. Its reads may be called at once,
// before and while Run runs, and answer from memory what is known; one that
// has to wait for the server does so until its context ends.
//
// A read by a name that no pod refers to asks the server once in a few
// seconds. What static pods alone refer to does not exist for it: the server
// gives a node nothing for them, and would be asked for ever.
type Objects struct {
	config  Config
	outage  outage
	listing chan struct{} // a place for each list that is under way
	wake    chan struct{}
	done    chan struct{} // Run has ended with its context
	end     sync.Once     // closes done

	mu      sync.Mutex
	jobs    []func(context.Context) // that Run is to start
	entries map[key]*entry
	locals  map[key]struct{} // what static pods alone refer to
	strayed map[key]struct{} // what was read before any pod referred to it
	pods    map[types.UID]struct{}

	strays   *demand[key, runtime.Object]
	claims   *demand[key, *v1.PersistentVolumeClaim]
	volumes  *demand[key, *v1.PersistentVolume]
	classes  *demand[key, *nodev1.RuntimeClass]
	services *demand[string, []*v1.Service]
	tokens   *demand[tokenKey, token]
	bundles  *demand[bundleKey, string]
}

var _ objects.Reader = (*Objects)(nil)

// key names one object. namespace is empty for one that belongs to none.
type key struct{ kind, namespace, name string }

func (k key) String() string {
	if k.namespace == "" {
		return k.kind + " " + k.name
	}
	return k.kind + " " + k.namespace + "/" + k.name
}

// New checks the configuration; nothing is asked.
func New(config Config) (*Objects, error) {
	if config.API == nil || config.Log == nil {
		return nil, errors.New("objects of the API server: API and log are required")
	}
	o := &Objects{
		config: config,
		outage: outage{said: apiclient.NewOutage(config.Log,
			"objects of the API server stay as they were last known", "objects of the API server are followed again")},
		listing: make(chan struct{}, maxLists),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		entries: make(map[key]*entry),
		strayed: make(map[key]struct{}),
	}
	o.strays = newDemand(o, o.fetchStray, patience, recently)
	o.claims = newDemand(o, o.fetchClaim, patience, recently)
	o.volumes = newDemand(o, o.fetchVolume, patience, recently)
	o.classes = newDemand(o, o.fetchClass, patience, recently)
	o.services = newDemand(o, o.fetchServices, patience, recently)
	o.bundles = newDemand(o, o.fetchBundle, patience, recently)
	// A token that is valid is not waited for, and an account that is gone
	// takes no token away that is still valid.
	o.tokens = newDemand(o, o.fetchToken, 0, 0)
	return o, nil
}

// Run makes all requests, until ctx ends, whose cause is its error. Only one
// Run goes on at a time.
func (o *Objects) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer func() {
		if ctx.Err() != nil {
			o.end.Do(func() { close(o.done) })
		}
	}()
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-o.wake:
		}
		o.mu.Lock()
		jobs := o.jobs
		o.jobs = nil
		o.mu.Unlock()
		for _, job := range jobs {
			group.Go(func() { job(ctx) })
		}
	}
}

// start has Run start a job. The caller holds no lock of o's.
func (o *Objects) start(job func(context.Context)) {
	o.mu.Lock()
	o.jobs = append(o.jobs, job)
	o.mu.Unlock()
	o.woken()
}

// woken wakes Run.
func (o *Objects) woken() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// notFound is the answer that there is no such object, with the name that the
// kubelet has for its kind.
func notFound(k key) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resources[k.kind]}, k.name)
}

var resources = map[string]string{
	objects.KindConfigMap: "configmap",
	objects.KindSecret:    "secret",
	objects.KindClaim:     "persistentvolumeclaim",
	kindBundle:            "clustertrustbundle",
}

// genuine is an error of the server for which IsNotFound holds only if an API
// server said so of an object: what stands in front of one answers 404 too, and
// so does one that does not serve the resource.
func genuine(err error) error {
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) {
		return fmt.Errorf("the server does not serve it: %s", err.Error())
	}
	return err
}

// slim drops what no pod can see and what is often half of an object.
func slim(o metav1.Object) {
	o.SetManagedFields(nil)
	delete(o.GetAnnotations(), v1.LastAppliedConfigAnnotation)
}
