package local

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/wait"
)

// Config configures a Server. All functions must be safe for concurrent use.
type Config struct {
	// SocketPath is the path of the socket for root. Its directory is created with mode
	// 0700, the socket with 0600.
	SocketPath string
	// HealthzAddress is the listen address of /healthz, such as
	// 127.0.0.1:10248; "" disables it.
	HealthzAddress string
	// Page serves / and all paths below PagePrefix at HealthzAddress; nil
	// disables the status page.
	Page http.Handler
	// Pods lists the pods in display order. The pods must not be modified
	// afterwards.
	Pods func(ctx context.Context) []Pod
	// Events lists the recent events, the oldest first.
	Events func() []event.Event
	// Usage measures the resource usage of the node and its pods. The result
	// must not be modified afterwards. nil disables PathUsage.
	Usage func(ctx context.Context) (*Usage, error)
	// Watch calls handle with the recent events, and then with new ones,
	// until ctx ends or handle fails, as event.Recorder's Watch.
	Watch func(ctx context.Context, handle func([]event.Event) error) error
	// Drain terminates the node's pods before a shutdown.
	Drain Drain
	// Checks are the checks of /healthz, in this order.
	Checks []Check
	// RuntimeCalls returns the number of calls to the container runtime.
	RuntimeCalls func() uint64
	// Cluster returns the state of the connection to the API server; nil is a
	// standalone node.
	Cluster func() *Cluster
	// Conditions returns the conditions of a standalone node.
	Conditions func() []Condition
	// Todo returns actions that the administrator must take at the node.
	Todo func() []string
	// Problem returns Status.Problem.
	Problem func() string
	// Metrics writes the agent's metrics in Prometheus' text format, and
	// returns errors of w.
	Metrics func(ctx context.Context, w io.Writer) error
	// Streaming serves PathExec and PathAttach; it is the Handler of
	// agent/server/streaming. The caller ends the sessions.
	Streaming http.Handler
	Log       *slog.Logger
}

// RuntimeCheck is the name of the check of the container runtime.
const RuntimeCheck = "runtime"

// Check is a health check of the agent.
type Check struct {
	// Name is a path element, such as syncloop.
	Name string
	// Healthy returns nil or the failure. Requests for /healthz, the status and the
	// status page wait for it, so it must return within seconds. It is called
	// concurrently.
	Healthy func(now time.Time) error
}

// Server serves the local API. Without requests it uses only its listeners and their
// goroutines.
type Server struct {
	config   Config
	started  time.Time
	watches  chan struct{} // one item for each event watch
	sessions chan struct{} // one item for each exec or attach session
}

// New returns a Server. It starts nothing.
func New(c Config) *Server {
	return &Server{
		config: c, started: time.Now(),
		watches: make(chan struct{}, maxWatches), sessions: make(chan struct{}, maxSessions),
	}
}

// Run serves until ctx ends, waits for the requests in progress, which it aborts after 2 s,
// and returns nil. It logs errors of listening, such as a port in use, and retries: the pods
// do not depend on this server. Run replaces an existing socket, so the caller must have
// claimed the node (ClaimNode).
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	if s.config.HealthzAddress != "" {
		wg.Go(func() { s.keepServing(ctx, s.config.HealthzAddress, s.listenHealthz, s.healthz(), maxHeaderBytes) })
	}
	s.keepServing(ctx, s.config.SocketPath, s.listenSocket, s.socket(), maxCommandBytes)
	wg.Wait()
	return nil
}

// First and longest backoff between attempts to listen.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// keepServing listens and serves until ctx ends.
func (s *Server) keepServing(ctx context.Context, address string, listen func(context.Context) (net.Listener, error), h http.Handler, maxHead int) {
	log := s.config.Log.With("address", address)
	for retryIn := firstRetry; ; retryIn = min(2*retryIn, longestRetry) {
		l, err := listen(ctx)
		if err == nil {
			log.Debug("serving local API")
			err = serve(ctx, l, h, maxHead, log)
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("cannot serve local API", "error", err, "retryIn", retryIn)
		if !wait.Pause(ctx, retryIn) {
			return
		}
	}
}
