package registration

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
)

// API are the requests that a Registrar sends. *apiclient.Client implements it.
type API interface {
	Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error
	Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error
	Patch(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error
	Delete(ctx context.Context, r apiclient.Resource, namespace, name string, options metav1.DeleteOptions) error
}

// Config configures a Registrar.
type Config struct {
	API API
	// Object is the Node at the API server.
	Object   *Object
	NodeName string
	// Trigger triggers a comparison of Inputs with the reported status. The Registrar is
	// its only receiver.
	Trigger wait.Wakeup
	// Register is registerNode of KubeletConfiguration. Without it the Node must be
	// created by others.
	Register bool
	// BeforeUpdate is called before each comparison of Inputs with the reported status,
	// before each report, also while reports fail, and before each attempt to create the
	// node. It must not block.
	BeforeUpdate func()
	// Inputs returns the inputs of the current node status. It is called at least
	// once in each StatusUpdateInterval unless reports fail, so it must not send requests
	// over the network. It stops when ctx ends.
	Inputs func(ctx context.Context) *nodestatus.Inputs
	// InputsKnown is closed when Inputs has what the first report of a restarted agent needs.
	// A node that is Ready would not be without the status of its runtime, for a moment in
	// which controllers see it. The lease is renewed meanwhile. nil means that it is known.
	InputsKnown          <-chan struct{}
	StatusUpdateInterval time.Duration // between two comparisons: nodeStatusUpdateFrequency
	StatusReportInterval time.Duration // without a change: nodeStatusReportFrequency
	// LeaseDuration is how long the node counts as alive without a renewal, in whole
	// seconds: nodeLeaseDurationSeconds. The lease is renewed each quarter of that,
	// or each RenewInterval if that is not 0.
	LeaseDuration time.Duration
	RenewInterval time.Duration
	// HasKubeletVolumes reports whether volumes are left on this node that a kubelet set
	// up with plugins which tinylet does not have. It is called before a report as
	// long as the Node lists such volumes.
	HasKubeletVolumes func() (bool, error)
	// Recovered ends backoff waits when the API server is reachable again. It may
	// be nil.
	Recovered apiclient.Recoveries
	Events    *event.Recorder
	Log       *slog.Logger
}

// Registrar registers one node and reports its status. Its methods are safe for
// concurrent use.
type Registrar struct {
	*Object
	cfg       Config
	reportNow chan struct{} // one slot: report now, changed or not

	// Only for the goroutine of report.
	csiNodeDeleted bool // send no further deletion
	unschedulable  bool // of the last event NodeNotSchedulable or NodeSchedulable
}

// New returns a Registrar. It sends no request.
func New(cfg Config) *Registrar {
	return &Registrar{Object: cfg.Object, cfg: cfg, reportNow: make(chan struct{}, 1)}
}

// Conditions returns the conditions of the Node as they would be reported now.
func (r *Registrar) Conditions(ctx context.Context) []v1.NodeCondition {
	var last *v1.NodeStatus
	if n := r.Node(); n != nil {
		last = &n.Status
	}
	status, _ := nodestatus.Status(last, r.cfg.Inputs(ctx)) // the status report logs the error
	return status.Conditions
}

// Run registers the node, reports its status and renews its lease until ctx ends.
// It returns the cause of ctx.
func (r *Registrar) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		// The Node owns the lease, and nothing reads the lease before the Node
		// exists.
		if r.register(ctx) {
			wg.Go(func() { r.renew(ctx) })
			if r.awaitInputs(ctx) {
				r.report(ctx)
			}
		}
	})
	wg.Wait()
	return context.Cause(ctx)
}

// awaitInputs waits for InputsKnown. It returns false if ctx ends first.
func (r *Registrar) awaitInputs(ctx context.Context) bool {
	if r.cfg.InputsKnown == nil {
		return true
	}
	select {
	case <-r.cfg.InputsKnown:
		return true
	case <-ctx.Done():
		return false
	}
}

// outage returns a log of the periods in which one kind of request fails.
func (r *Registrar) outage(what string) *apiclient.Outage {
	return apiclient.NewOutage(r.cfg.Log.With("operation", what),
		"API request failed, retry", "API request succeeded again")
}

// gaveUp reports whether an attempt failed because ctx was cancelled.
func gaveUp(ctx context.Context, err error) bool {
	return err != nil && errors.Is(ctx.Err(), context.Canceled)
}
