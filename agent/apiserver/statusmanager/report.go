package statusmanager

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// API is what is asked of the API server. Calls block until ctx ends at the
// latest, and return errors of k8s.io/apimachinery/pkg/api/errors for what the
// server refused. Several calls run at once. *apiclient.Client is one.
type API interface {
	Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error
	Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error
	Patch(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error
	Delete(ctx context.Context, r apiclient.Resource, namespace, name string, options metav1.DeleteOptions) error
}

// Entry is a pod of the node and its newest status, nil if there is nothing to
// tell of it. Both are shared: nobody changes what they point to, and a new
// status is at a new address.
type Entry struct {
	Pod    *v1.Pod
	Status *v1.PodStatus
}

// Config is what a Reporter needs. Its functions must not block, and are
// called by Run alone.
type Config struct {
	API      API
	NodeName string
	// NodeUID answers the UID of the registered Node; "" says that there is
	// none yet. Look is to be called when there is.
	NodeUID func() types.UID
	// List answers all pods that the agent knows, static ones included.
	List func() []Entry
	// Changed receives after one or more changes of List. This is its only
	// reader.
	Changed <-chan struct{}
	// Done says that nothing of a pod runs, that its volumes are gone and that
	// List has its last status. Look is to be called when it becomes true.
	Done func(uid types.UID) bool
	// StaticGone says that no source has a static pod of this name and that
	// nothing of one runs: its mirror pod may go. It is false as long as not
	// every source has told its pods; Look is to be called then. nil leaves
	// such mirror pods alone.
	StaticGone func(namespace, name string) bool
	// Coalesce is how long a change of a status waits for further ones, other
	// than of phase or readiness, which go out at once.
	Coalesce time.Duration
	// Recovered ends waits when the server is there again; nil does not.
	Recovered apiclient.Recoveries
	Log       *slog.Logger
}

// Reporter tells the API server of the node's pods. Its methods may be called
// concurrently.
type Reporter struct {
	Config

	woken chan struct{}

	mu    sync.Mutex
	told  []*v1.Pod
	ready bool // told is a set, if only an empty one
	fresh bool // told has not been looked at yet
}

// New makes a Reporter and starts nothing.
func New(c Config) *Reporter {
	return &Reporter{Config: c, woken: make(chan struct{}, 1)}
}

// Pods tells all pods that the API server has for this node, mirror pods
// included. Nobody may change them any more, nor the list. It never blocks;
// the newest set counts. Until the first one nothing is reported.
func (r *Reporter) Pods(api []*v1.Pod) {
	r.mu.Lock()
	r.told, r.ready, r.fresh = api, true, true
	r.mu.Unlock()
	r.wake()
}

// Look says that the answers of Done, NodeUID or StaticGone may have changed,
// for one pod or, with "", for all. It never blocks.
func (r *Reporter) Look(types.UID) { r.wake() }

func (r *Reporter) wake() {
	select {
	case r.woken <- struct{}{}:
	default: // a look is due already
	}
}

// newest is the last set told; ready is false before the first, and fresh
// says that it was not asked for before.
func (r *Reporter) newest() (set []*v1.Pod, ready, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh, r.fresh = r.fresh, false
	return r.told, r.ready, fresh
}
