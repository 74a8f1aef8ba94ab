package registration

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// API is what is asked of the API server: *apiclient.Client has it.
type API interface {
	Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error
	Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error
	Patch(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error
	Delete(ctx context.Context, r apiclient.Resource, namespace, name string, options metav1.DeleteOptions) error
}

// Config is what a Registrar needs.
type Config struct {
	API      API
	NodeName string
	// Register is registerNode of KubeletConfiguration: without it somebody
	// else creates the Node.
	Register bool
	// Looked is called at each look, before Inputs: for checks that are due
	// whenever the agent is awake. It must not block. nil is none.
	Looked func()
	// Inputs answers what the node is like now. It is called in each Look, so
	// it must not ask anybody far away; ctx ends it.
	Inputs func(ctx context.Context) *nodestatus.Inputs
	Look   time.Duration // between two looks at Inputs: nodeStatusUpdateFrequency
	Report time.Duration // between two reports of what did not change: nodeStatusReportFrequency
	// Lease is how long the node counts as alive without a renewal, in whole
	// seconds: nodeLeaseDurationSeconds. It is renewed each quarter of that,
	// or each Renew if that is set.
	Lease time.Duration
	Renew time.Duration
	// VolumesLeft reports whether anything is on this node of volumes that a
	// kubelet set up with plugins which this agent does not have. It is called
	// before a report while the Node tells of such volumes. nil is not known.
	VolumesLeft func() (bool, error)
	// Registered is told of the node as the server has it, whenever it was
	// read or patched. It must not block. nil is nobody.
	Registered func(*v1.Node)
	// Recovered ends waits when the server is there again; nil does not.
	Recovered apiclient.Recoveries
	Events    *event.Recorder
	Log       *slog.Logger
}

// Registrar speaks for one node.
type Registrar struct {
	cfg  Config
	look chan struct{} // one slot: look at Inputs now
	news chan struct{} // one slot: report now, whatever Inputs say

	noCSINode bool // belongs to who reports

	mu   sync.Mutex
	node *v1.Node // as the server had it last, nil until registered
	uid  types.UID
}

// New makes a registrar; nothing is asked.
func New(cfg Config) *Registrar {
	return &Registrar{cfg: cfg, look: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// Look says that something which Inputs tells of may have changed. It never
// blocks.
func (r *Registrar) Look() { fill(r.look) }

// UID is the Node's at the API server, "" until the node is registered.
func (r *Registrar) UID() types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uid
}

// Node is the node as the server had it last, nil until it is registered. It
// is shared: nobody changes it.
func (r *Registrar) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// Run registers, reports and renews until ctx ends; its error is ctx's cause.
func (r *Registrar) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		// The lease belongs to the Node, and nobody looks at it before.
		if r.register(ctx) {
			wg.Go(func() { r.renew(ctx) })
			r.report(ctx)
		}
	})
	wg.Wait()
	return context.Cause(ctx)
}

// keep remembers the node as the server has it.
func (r *Registrar) keep(n *v1.Node) {
	n.ManagedFields = nil
	r.mu.Lock()
	r.node, r.uid = n, n.UID
	r.mu.Unlock()
	if r.cfg.Registered != nil {
		r.cfg.Registered(n)
	}
}

// outage is for spells in which the server does not do one thing.
func (r *Registrar) outage(what string) *apiclient.Outage {
	return apiclient.NewOutage(r.cfg.Log.With("for", what),
		"API server does not do what was asked, and is asked again", "API server does what was asked again")
}

// pause waits for d or until ctx ends, and says whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// fill puts a token into a one-slot channel unless there is one.
func fill(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// jitter moves d by up to 4 % either way, as the kubelet does with its lease.
func jitter(d time.Duration) time.Duration { return d - d/25 + rand.N(2*(d/25)+1) }

// gaveUp says that an attempt ended because ctx did.
func gaveUp(ctx context.Context, err error) bool {
	return err != nil && errors.Is(ctx.Err(), context.Canceled)
}
