package source

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// apiGap is the least time between two sets of an API source. A pod that
// changes alone is handed over at once; what comes in the wake of a set is
// handed over together.
const apiGap = 100 * time.Millisecond

// PodAPI is what an API source asks of an API server, as *apiclient.Client
// does it.
type PodAPI interface {
	List(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions, into runtime.Object) error
	Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error)
}

// APIConfig is what an API source needs.
type APIConfig struct {
	API      PodAPI
	NodeName string
	// All is told of every pod of the node, the mirrors of static pods
	// included, before the set that they belong to, and alone if only a
	// mirror changed. It may be nil, must not block for long, and changes no
	// pod.
	All func([]*v1.Pod)
	// Recovered ends waits when the server is there again; nil does not.
	Recovered apiclient.Recoveries

	Log    *slog.Logger
	Events *event.Recorder
}

// API is the source of the pods that an API server has for this node. While
// the server does not answer, its pods stay as they were known last.
type API struct {
	config APIConfig
	follow follower
	news   chan struct{} // of one slot: there is something to hand over

	mu   sync.Mutex
	pods apiPods
}

// NewAPI checks the configuration and makes the source; it asks nothing.
func NewAPI(config APIConfig) (*API, error) {
	if config.API == nil || config.NodeName == "" || config.Log == nil || config.Events == nil {
		return nil, errors.New("api source: API, node name, log and events are required")
	}
	a := &API{config: config, news: make(chan struct{}, 1), pods: apiPods{nodeName: config.NodeName}}
	a.follow = follower{api: config.API, nodeName: config.NodeName, log: config.Log, sink: a, recovered: config.Recovered}
	return a, nil
}

// Run follows the node's pods and hands them to set, the first time after the
// first good list, then when they change, the oldest pod first, until ctx
// ends; its error is ctx's cause. While set blocks, changes are gathered. Pods
// that did not change are the same pointers as in the set before. Only one Run
// goes on at a time.
func (a *API) Run(ctx context.Context, set func(context.Context, Wanted)) error {
	var deliverer sync.WaitGroup
	deliverer.Go(func() { a.deliver(ctx, set) })
	defer deliverer.Wait()
	return a.follow.run(ctx)
}

// deliver hands over what the news are of.
func (a *API) deliver(ctx context.Context, set func(context.Context, Wanted)) {
	var last []*v1.Pod
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-a.news:
		}
		a.mu.Lock()
		all := a.pods.all()
		a.mu.Unlock()
		if a.config.All != nil {
			a.config.All(all)
		}
		wanted := slices.DeleteFunc(slices.Clone(all), pod.IsMirror)
		if first || !slices.Equal(wanted, last) {
			set(ctx, Wanted{Pods: wanted})
			last = slices.Clone(wanted)
		}
		if !pause(ctx, apiGap) {
			return
		}
	}
}

// tell has an event for each refusal; the recorder counts those that repeat.
// The pod's name is in the message alone, quoted: it is no name.
func (a *API) tell(refused []string) {
	for _, message := range refused[:min(len(refused), maxReported)] {
		a.config.Events.Warning(pod.Ref{}, ReasonRefusedPod, message)
	}
}

// listed takes a full list of the server's.
func (a *API) listed(items []v1.Pod) {
	a.mu.Lock()
	refused := a.pods.replace(items)
	a.mu.Unlock()
	a.tell(refused)
	a.nudge() // also if nothing changed: the first set is due
}

// changed takes one change from the server.
func (a *API) changed(kind watch.EventType, p *v1.Pod) {
	a.mu.Lock()
	changed, refused := a.pods.apply(kind, p)
	a.mu.Unlock()
	if refused != "" {
		a.tell([]string{refused})
	}
	if changed {
		a.nudge()
	}
}

func (a *API) nudge() {
	select {
	case a.news <- struct{}{}:
	default: // one is there
	}
}

// pause waits, and says whether it did so to the end.
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
