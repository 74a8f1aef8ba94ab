// Package eventsink sends the recorder's events to the API server, as the kubelet's
// own (k8s.io/client-go/tools/record): events of core/v1 from the component
// kubelet, about a pod or the node, an event that happens again as a patch of
// the count.
//
// Core/v1 and not events.k8s.io/v1, because that is what a kubelet writes and
// what dashboards and exporters of events read: the newer API refuses
// count, firstTimestamp, lastTimestamp and source, by which kubectl sorts.
//
// Nothing is kept here but what was sent of the events that the recorder
// remembers: without an API server they are where they were, and what is still
// remembered when it is back is sent then, once.
package eventsink

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod/event"
)

const (
	// defaultCoalesce is far under the hour for which a server keeps an event
	// that is not patched.
	defaultCoalesce = 5 * time.Minute
	// maxWait is the longest wait for a server that does not answer: an event
	// is not worth more.
	maxWait = 2 * time.Minute
	// maxKnown is over what a recorder remembers.
	maxKnown = 512
)

// EventAPI is what a sink asks of an API server, as *apiclient.Client does it.
type EventAPI interface {
	Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error
	Patch(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error
}

// Config is what a Sink needs.
type Config struct {
	API EventAPI
	// Watch is that of an event.Recorder.
	Watch func(ctx context.Context, handle func([]event.Event) error) error
	// Ready blocks until the clock shows the time of day, or ctx ends; nil
	// does not block.
	Ready func(ctx context.Context) error
	// NodeName is what events without a pod are about, and the host that all
	// are from.
	NodeName string
	// Coalesce is how long an event that was sent is not sent again, though
	// it happens again; then its count is. A tenth of jitter is added. Zero
	// means 5 min.
	Coalesce time.Duration
	// QPS and Burst are eventRecordQPS and eventBurst of the kubelet's
	// configuration: how many requests a second, and how many at once. A QPS
	// of 0 is no limit.
	QPS   float32
	Burst int
	// Recovered ends waits when the server is there again; nil does not.
	Recovered apiclient.Recoveries
	Log       *slog.Logger
}

// Sink sends events.
type Sink struct {
	config  Config
	limiter flowcontrol.RateLimiter // nil is no limit
	known   map[key]*known
	wait    apiclient.Backoff
	outage  *apiclient.Outage
	refused bool // a refusal was logged, and nothing was sent since
}

// New checks the configuration and makes a sink; nothing is sent.
func New(config Config) (*Sink, error) {
	if config.API == nil || config.Watch == nil || config.NodeName == "" || config.Log == nil {
		return nil, errors.New("event sink: API, watch, node name and log are required")
	}
	if config.Coalesce <= 0 {
		config.Coalesce = defaultCoalesce
	}
	s := &Sink{
		config: config, known: make(map[key]*known), wait: apiclient.Backoff{Max: maxWait},
		outage: apiclient.NewOutage(config.Log,
			"events cannot be sent to the API server; the last are kept", "events are sent to the API server again"),
	}
	if config.QPS > 0 {
		s.limiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, max(config.Burst, 1))
	}
	return s, nil
}

// errWake ends a watch that has to begin anew with another alarm.
var errWake = errors.New("events are to be looked at again")

// Run sends events until ctx ends, and returns its cause. Only one
// Run goes on at a time.
func (s *Sink) Run(ctx context.Context) error {
	if s.config.Ready != nil {
		if err := s.config.Ready(ctx); err != nil && ctx.Err() == nil {
			s.config.Log.Warn("the clock may be wrong in events", "error", err)
		}
	}
	for ctx.Err() == nil {
		again := s.config.Recovered.Next()
		var failure *outage
		if errors.As(s.watch(ctx), &failure) {
			s.outage.Note(failure.err)
			s.wait.Wait(ctx, again)
		}
	}
	return context.Cause(ctx)
}

// watch takes events until ctx ends, or those that were held back are due, or
// the server does not take them. It begins with all that are remembered.
func (s *Sink) watch(ctx context.Context) error {
	alarm := s.alarm()
	watching, cancel := ctx, context.CancelFunc(func() {})
	if !alarm.IsZero() {
		watching, cancel = context.WithDeadline(ctx, alarm)
	}
	defer cancel()
	whole := true
	return s.config.Watch(watching, func(events []event.Event) error {
		if whole {
			s.forgetBut(events)
			whole = false
		}
		for i := range events {
			if err := s.send(ctx, &events[i]); err != nil {
				return err
			}
		}
		if next := s.alarm(); len(s.known) > maxKnown || (!next.IsZero() && (alarm.IsZero() || next.Before(alarm))) {
			return errWake
		}
		return nil
	})
}

// outage is an error that has nothing to do with the event.
type outage struct{ err error }

func (o *outage) Error() string { return o.err.Error() }
func (o *outage) Unwrap() error { return o.err }

// rose notes that the server took an event.
func (s *Sink) rose() {
	s.wait.Reset()
	s.refused = false
	s.outage.Note(nil)
}

// drop logs that the server does not want an event: as a warning only the
// first, until it takes one.
func (s *Sink) drop(e *event.Event, err error) {
	level := slog.LevelWarn
	if s.refused {
		level = slog.LevelDebug
	}
	s.refused = true
	s.config.Log.Log(context.Background(), level, "the API server refuses an event", "pod", e.Pod.String(), "reason", e.Reason, "error", err)
}

// jittered is d and up to a tenth more, so that many boards do not act as one.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10+1) }
