package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/pod/event"
)

// Config is what a Server needs.
type Config struct {
	// SocketPath is where root is answered; "" is DefaultSocketPath. Its
	// folder is made with mode 0700, the socket with 0600.
	SocketPath string
	// HealthzAddress is where /healthz is answered, such as 127.0.0.1:10248;
	// "" is nowhere.
	HealthzAddress string
	// Page answers / and all below PagePrefix at HealthzAddress; nil is that
	// there is no status page.
	Page http.Handler
	// Pods lists the pods, in the order to be shown. The pods must not be
	// changed afterwards.
	Pods func(ctx context.Context) []Pod
	// Events lists the recent events, the oldest first.
	Events func() []event.Event
	// Usage reads what the node and its pods use, which nobody changes
	// afterwards. It may be called at once. nil is that nobody measures.
	Usage func(ctx context.Context) (*Usage, error)
	// Watch hands over the recent events, and then each that happens, until
	// ctx ends or handle fails; event.Recorder's Watch. nil is that nobody
	// can watch.
	Watch func(ctx context.Context, handle func([]event.Event) error) error
	// Drain ends the node's pods before it goes down.
	Drain Drain
	// Checks are what /healthz goes by, in this order.
	Checks []Check
	// RuntimeCalls is how often the container runtime was called; nil is not
	// known.
	RuntimeCalls func() uint64
	// Cluster tells of the API server; nil is a board alone.
	Cluster func() *Cluster
	// Conditions tells the node's on a board alone; nil tells none.
	Conditions func() []Condition
	// Todo tells what somebody has to do at the node; nil tells nothing.
	Todo func() []string
	// Metrics writes what Prometheus is told, in its text format, and fails
	// where w does; nil is nothing.
	Metrics func(ctx context.Context, w io.Writer) error
	// Streaming serves PathExec and PathAttach, agent/server/streaming's Handler; nil is
	// nothing. Whoever gives it ends the sessions.
	Streaming http.Handler
	Log       *slog.Logger
}

// Check is one condition of the agent's health.
type Check struct {
	// Name is a path element, such as syncloop.
	Name string
	// Healthy answers nil or what is wrong. It must not block: a watchdog
	// waits. It is called concurrently.
	Healthy func(now time.Time) error
}

// Server answers local questions. It runs nothing while nobody asks.
type Server struct {
	config   Config
	started  time.Time
	problem  func() string // nil is nothing
	watches  chan struct{} // one item for each that watches
	sessions chan struct{} // one item for each session into a container
}

// New checks the configuration. It starts nothing.
func New(c Config) (*Server, error) {
	if c.SocketPath == "" {
		c.SocketPath = DefaultSocketPath
	}
	if c.Pods == nil || c.Events == nil || c.Log == nil {
		return nil, errors.New("local server: Pods, Events and Log are required")
	}
	for _, check := range c.Checks {
		if check.Name == "" || check.Healthy == nil {
			return nil, fmt.Errorf("local server: health check %q is incomplete", check.Name)
		}
	}
	return &Server{
		config: c, started: time.Now(),
		watches: make(chan struct{}, maxWatches), sessions: make(chan struct{}, maxSessions),
	}, nil
}

// TellProblem has the status tell what is wrong with the node, "" for nothing.
// It is to be called before Run; problem is called by many at once, and must not
// block.
func (s *Server) TellProblem(problem func() string) { s.problem = problem }

// Run answers until ctx ends, then returns nil when everything that it
// started is done. What keeps it from listening, such as a port that is taken,
// is logged and tried again: the pods do not depend on it. Run replaces a
// socket that it finds, so the caller must hold the node's claim (ClaimNode).
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	if s.config.HealthzAddress != "" {
		wg.Go(func() { s.keepServing(ctx, s.config.HealthzAddress, s.listenHealthz, s.healthz(), maxHeaderBytes) })
	}
	s.keepServing(ctx, s.config.SocketPath, s.listenSocket, s.socket(), maxCommandBytes)
	wg.Wait()
	return nil
}

// First and longest wait before the next attempt to listen.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// keepServing listens and serves until ctx ends.
func (s *Server) keepServing(ctx context.Context, address string, listen func(context.Context) (net.Listener, error), h http.Handler, maxHead int) {
	log := s.config.Log.With("address", address)
	for wait := firstRetry; ; wait = min(2*wait, longestRetry) {
		l, err := listen(ctx)
		if err == nil {
			log.Debug("answering")
			err = serve(ctx, l, h, maxHead, log)
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("cannot answer, trying again", "error", err, "wait", wait)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
