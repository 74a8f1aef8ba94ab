package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
)

// apiGap is the minimum time between two sets of an API source. A single change
// is handed over at once; changes that follow within the gap are handed over
// together.
const apiGap = 100 * time.Millisecond

// APIConfig configures an API source. API, NodeName, Log and Events are
// required.
type APIConfig struct {
	API      apiclient.API
	NodeName string
	// All is called with every pod of the node, including the mirror pods of
	// static pods, before the set that they belong to, and also if only a
	// mirror pod changed. It may be nil, must not block for long, and must not
	// modify the pods.
	All func([]*v1.Pod)
	// Recovered interrupts backoff waits when the API server is reachable
	// again; nil does not.
	Recovered apiclient.Recoveries

	Log    *slog.Logger
	Events *event.Recorder
}

// API is the config source for the pods that an API server assigns to this
// node. While the API server is unreachable, the last known pods stay.
type API struct {
	config APIConfig
	follow follower
	wake   chan struct{} // capacity 1: there are changes to hand over

	mu   sync.Mutex
	pods apiPods
}

// NewAPI validates the configuration and returns an API source. It makes no
// request.
func NewAPI(config APIConfig) (*API, error) {
	if config.API == nil || config.NodeName == "" || config.Log == nil || config.Events == nil {
		return nil, errors.New("api source: API, NodeName, Log and Events are required")
	}
	a := &API{config: config, wake: make(chan struct{}, 1), pods: apiPods{nodeName: config.NodeName, byUID: make(map[types.UID]*v1.Pod)}}
	a.follow = follower{config: &a.config, sink: a}
	return a, nil
}

// Run lists and watches the node's pods until ctx ends. It hands them to set
// after the first successful list and then whenever they change, the oldest pod
// first. It returns ctx's cause. While set blocks, changes are collected. Pods
// that did not change are the same pointers as in the previous set. At most one
// Run may be active at a time.
func (a *API) Run(ctx context.Context, set func(context.Context, PodSet)) error {
	var deliverer sync.WaitGroup
	deliverer.Go(func() { a.deliver(ctx, set) })
	defer deliverer.Wait()
	return a.follow.run(ctx)
}

// deliver hands over the pods after each notification on wake. It calls set for the first
// list and when the pods other than mirror pods have changed.
func (a *API) deliver(ctx context.Context, set func(context.Context, PodSet)) {
	var last []*v1.Pod
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		a.mu.Lock()
		all := a.pods.all()
		a.mu.Unlock()
		if a.config.All != nil {
			a.config.All(all)
		}
		desired := slices.DeleteFunc(slices.Clone(all), pod.IsMirror)
		if first || !slices.Equal(desired, last) {
			set(ctx, PodSet{Pods: desired})
			last = slices.Clone(desired)
		}
		if !wait.Pause(ctx, apiGap) {
			return
		}
	}
}

// reportRejected emits an event for each of the first maxReported rejected pods, and one with the
// number of the others. The recorder counts repetitions.
// The pod's name appears in the message only, quoted, since it may be invalid.
func (a *API) reportRejected(refused []string) {
	for i, message := range refused {
		if i == maxReported {
			a.config.Events.Warning(pod.Ref{}, ReasonRefusedPod, fmt.Sprintf("%d more pods of the API server are rejected", len(refused)-i))
			return
		}
		a.config.Events.Warning(pod.Ref{}, ReasonRefusedPod, message)
	}
}

func (a *API) onList(items []v1.Pod) {
	a.mu.Lock()
	refused := a.pods.replace(items)
	a.mu.Unlock()
	a.reportRejected(refused)
	wait.Notify(a.wake) // also if nothing changed: the first set is pending
}

func (a *API) onEvent(kind watch.EventType, p *v1.Pod) {
	a.mu.Lock()
	changed, refused := a.pods.apply(kind, p)
	a.mu.Unlock()
	if refused != "" {
		a.reportRejected([]string{refused})
	}
	if changed {
		wait.Notify(a.wake)
	}
}
