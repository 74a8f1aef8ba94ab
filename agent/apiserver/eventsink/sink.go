// Package eventsink sends the recorder's events to the API server, as the kubelet
// does (k8s.io/client-go/tools/record): core/v1 events from the component kubelet,
// about a pod or the node. A repeated event is sent as a patch of the count.
//
// It uses core/v1 and not events.k8s.io/v1, because a kubelet writes core/v1, and
// dashboards and event exporters read it: the newer API rejects count,
// firstTimestamp, lastTimestamp and source, by which kubectl sorts.
//
// The package stores only the state of the recorder's events on the API server. During
// an outage the events stay in the recorder. Those that are still there after the
// outage are then sent, once.
package eventsink

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
)

const (
	// defaultCoalesce is well below the hour for which a server keeps an event that
	// is not patched.
	defaultCoalesce = 5 * time.Minute
	// maxWait is the maximum wait before an attempt during an outage.
	maxWait = 2 * time.Minute
	// maxKnown is the number of known events above which those that the recorder has
	// dropped are removed. It is above the number of events in a recorder (256).
	maxKnown = 512
)

// Config configures a Sink. API, Watch, NodeName and Log are required.
type Config struct {
	API apiclient.API
	// Watch is event.Recorder.Watch.
	Watch func(ctx context.Context, handle func([]event.Event) error) error
	// Ready blocks until the clock shows the time of day, or ctx ends; nil does not
	// block.
	Ready func(ctx context.Context) error
	// NodeName is the object of events without a pod, and the host of all events.
	NodeName string
	// Coalesce is the minimum time between two updates of a repeated event; its
	// count is sent afterwards. Up to a tenth of jitter is added. Zero means 5 min.
	Coalesce time.Duration
	// QPS and Burst are eventRecordQPS and eventBurst of the kubelet's
	// configuration: requests per second, and the size of a burst. A QPS of 0 means
	// no limit.
	QPS   float32
	Burst int
	// Recovered ends waits when the API server answers again; nil does not.
	Recovered apiclient.Recoveries
	Log       *slog.Logger
}

// Sink sends events to the API server.
type Sink struct {
	config  Config
	limiter flowcontrol.RateLimiter // nil means no limit
	sent    map[key]*sentEvent
	wait    wait.Backoff
	outage  *apiclient.Outage
	refused bool // a rejection was logged, and nothing was sent since
}

// New validates the configuration and returns a Sink. It sends nothing.
func New(config Config) (*Sink, error) {
	if config.API == nil || config.Watch == nil || config.NodeName == "" || config.Log == nil {
		return nil, errors.New("eventsink: API, Watch, NodeName and Log are required")
	}
	if config.Coalesce <= 0 {
		config.Coalesce = defaultCoalesce
	}
	s := &Sink{
		config: config, sent: make(map[key]*sentEvent), wait: wait.Backoff{Max: maxWait},
		outage: apiclient.NewOutage(config.Log,
			"cannot send events to API server", "sending events to API server again"),
	}
	if config.QPS > 0 {
		s.limiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, max(config.Burst, 1))
	}
	return s, nil
}

// errWake ends a watch that must restart, with an earlier alarm or with all events.
var errWake = errors.New("restart event watch")

// Run sends events until ctx ends, and returns its cause. Only one Run may be
// active at a time.
func (s *Sink) Run(ctx context.Context) error {
	if s.config.Ready != nil {
		if err := s.config.Ready(ctx); err != nil && ctx.Err() == nil {
			s.config.Log.Warn("event timestamps may be wrong", "error", err)
		}
	}
	for ctx.Err() == nil {
		again := s.config.Recovered.Next()
		var failure *outage
		if errors.As(s.watch(ctx), &failure) {
			s.outage.Record(failure.err)
			s.wait.Wait(ctx, again)
		}
	}
	return context.Cause(ctx)
}

// watch sends events until ctx ends, held events are due, or there is an outage. It
// starts with all events in the recorder.
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
		if next := s.alarm(); len(s.sent) > maxKnown || (!next.IsZero() && (alarm.IsZero() || next.Before(alarm))) {
			return errWake
		}
		return nil
	})
}

// outage is an error that is not caused by the event.
type outage struct{ err error }

func (o *outage) Error() string { return o.err.Error() }
func (o *outage) Unwrap() error { return o.err }

// recovered records that the server accepted an event.
func (s *Sink) recovered() {
	s.wait.Reset()
	s.refused = false
	s.outage.Record(nil)
}

// drop logs that the server rejected an event. Until the server accepts one, only
// the first rejection is a warning.
func (s *Sink) drop(e *event.Event, err error) {
	level := slog.LevelWarn
	if s.refused {
		level = slog.LevelDebug
	}
	s.refused = true
	s.config.Log.Log(context.Background(), level, "API server rejected event", "pod", e.Pod.String(), "reason", e.Reason, "error", err)
}
