package statusmanager

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// Config configures a Manager. Its functions must not block. Only Run calls them. API,
// Trigger, NodeUID, List, Done and Log are required.
type Config struct {
	API      apiclient.API
	NodeName string
	// Trigger starts a sync, because the results of NodeUID, List, Done or StaticGone may
	// have changed. The Manager is its only receiver.
	Trigger wait.Wakeup
	// NodeUID returns the UID of the registered Node, "" if there is none yet. Set
	// Trigger when there is.
	NodeUID func() types.UID
	// List returns all pods of the agent, including static pods, without a status if there is
	// nothing to report. A new status has a new address.
	List func() []pod.Entry
	// Changed receives a value after one or more changes of List. The Manager is
	// its only reader.
	Changed <-chan struct{}
	// Done reports whether nothing of a pod runs, its volumes are gone, and List
	// has its last status. Set Trigger when it becomes true.
	Done func(uid types.UID) bool
	// StaticGone reports whether no source has a static pod of this name and
	// nothing of one runs, so that its mirror pod may be deleted. It returns false
	// until every source has delivered its pods; set Trigger then. nil keeps such
	// mirror pods.
	StaticGone func(namespace, name string) bool
	// Coalesce is how long a status change waits for further ones. Changes of phase
	// or readiness are sent at once.
	Coalesce time.Duration
	// Recovered ends waits when the API server answers again; nil does not.
	Recovered apiclient.Recoveries
	Log       *slog.Logger
}

// Manager syncs the node's pods to the API server. Its methods may be called
// concurrently.
type Manager struct {
	Config

	mu    sync.Mutex
	pods  []*v1.Pod
	ready bool          // pods was set, possibly to an empty set
	fresh bool          // pods was not processed yet
	next  chan struct{} // closed by the next SetPods
}

// New returns a Manager. It starts nothing.
func New(c Config) *Manager {
	return &Manager{Config: c, next: make(chan struct{})}
}

// SetPods sets all pods that the API server has for this node, including mirror pods.
// Nobody may change the pods or the list afterwards. It never blocks, and the
// newest set counts. Nothing is sent before the first one.
func (r *Manager) SetPods(api []*v1.Pod) {
	r.mu.Lock()
	r.pods, r.ready, r.fresh = api, true, true
	close(r.next)
	r.next = make(chan struct{})
	r.mu.Unlock()
	r.Trigger.Set()
}

// IsTerminal reports whether the pod has a terminal phase in the last set of SetPods.
func (r *Manager) IsTerminal(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.pods, func(p *v1.Pod) bool { return p.UID == uid })
	return i >= 0 && pod.IsTerminal(r.pods[i].Status.Phase)
}

// AwaitTerminal blocks until each of the pods that uids returns has a terminal phase in
// the last set of SetPods or is not in it, or ctx ends. It returns at once before the
// first SetPods.
func (r *Manager) AwaitTerminal(ctx context.Context, uids func() []types.UID) {
	for {
		r.mu.Lock()
		pods, ready, next := r.pods, r.ready, r.next
		r.mu.Unlock()
		awaited := uids()
		if !ready || !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return slices.Contains(awaited, p.UID) && !pod.IsTerminal(p.Status.Phase) }) {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// newest returns the last set. ready is false before the first, and fresh means
// that the set was not returned before.
func (r *Manager) newest() (set []*v1.Pod, ready, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh, r.fresh = r.fresh, false
	return r.pods, r.ready, fresh
}
