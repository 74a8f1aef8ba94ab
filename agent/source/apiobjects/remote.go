package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/wait"
)

// Config configures Objects. API and Log are required.
type Config struct {
	API apiclient.API
	Log *slog.Logger
	// Changed is called for each ConfigMap and Secret that was added, changed
	// or removed, and for the first answer after a failed read, so that the
	// pods that reference it can be reconciled. It is called by several
	// goroutines. While it blocks, the object that it was called for is not
	// watched. It may call the Objects' methods. It may be nil.
	Changed func(kind, namespace, name string)
	// Recovered interrupts backoff waits when the API server is reachable
	// again; nil does not.
	Recovered apiclient.Recoveries
}

var (
	errShutdown = errors.New("agent is shutting down")
	errUnknown  = errors.New("not yet known")
	errSlow     = errors.New("API server is slow to respond")
)

// maxLists bounds the concurrent lists of ConfigMaps and Secrets, whose
// responses may be a megabyte each.
const maxLists = 8

// Objects reads objects from the API server. Its reads are safe for concurrent
// use, before and while Run is active. They return from memory what is known. A
// read that must wait for the API server does so until its context or Run's ends,
// or for readTimeout if there is a usable value.
//
// A read by a name that no pod references makes a request at most once in a few
// seconds. Objects that only static pods reference are reported as not found:
// the API server does not grant a node access to them.
type Objects struct {
	objects.Getter

	config  Config
	outage  outage
	listing chan struct{} // semaphore of the lists in progress
	wake    chan struct{}
	done    chan struct{} // closed when Run has returned because its context ended
	end     sync.Once     // closes done

	mu      sync.Mutex
	jobs    []func(context.Context) // to be started by Run
	entries map[key]*entry
	locals  sets.Set[key] // objects that only static pods reference
	strayed sets.Set[key] // objects read before any pod referenced them
	pods    sets.Set[types.UID]

	fetched  *readCache[key, objects.Object] // what is not watched
	services *readCache[string, []*v1.Service]
	tokens   *readCache[tokenKey, token]
	bundles  *readCache[bundleKey, string]
}

var _ objects.Reader = (*Objects)(nil)

// key names one object.
type key = objects.Key

// New validates the configuration and returns Objects. It makes no request.
func New(config Config) (*Objects, error) {
	if config.API == nil || config.Log == nil {
		return nil, errors.New("apiobjects: API and Log are required")
	}
	o := &Objects{
		config: config,
		outage: outage{log: apiclient.NewOutage(config.Log,
			"cannot read objects from API server", "resumed reading objects from API server")},
		listing: make(chan struct{}, maxLists),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		entries: make(map[key]*entry),
		strayed: sets.New[key](),
	}
	o.Getter = o.get
	o.fetched = newReadCache(o, o.fetch, readTimeout, recently)
	o.services = newReadCache(o, o.fetchServices, readTimeout, recently)
	o.bundles = newReadCache(o, o.fetchBundle, readTimeout, recently)
	// A read with a valid token does not wait, and a deleted account does not
	// invalidate a token that is still valid.
	o.tokens = newReadCache(o, o.fetchToken, 0, 0)
	return o, nil
}

// Run makes all requests until ctx ends, and returns ctx's cause. At most one
// Run may be active at a time.
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

// start queues a job for Run. The caller must not hold mu. It may hold that of a
// readCache: a readCache's mu is taken before mu.
func (o *Objects) start(job func(context.Context)) {
	o.mu.Lock()
	o.jobs = append(o.jobs, job)
	o.mu.Unlock()
	wait.Notify(o.wake)
}

// checkNotFound returns an error of an API request for which IsNotFound holds only if
// an API server reported that the object does not exist. A proxy may return 404
// too, and so does an API server that does not serve the resource.
func checkNotFound(err error) error {
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) {
		return fmt.Errorf("API server does not serve the resource: %s", err.Error())
	}
	return err
}

// slim drops the metadata that pods cannot use and that is often half the size
// of an object.
func slim(o metav1.Object) {
	o.SetManagedFields(nil)
	delete(o.GetAnnotations(), v1.LastAppliedConfigAnnotation)
}
