package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authz"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/wait"
)

// Config configures a Server. The funcs are called for each request, may be called
// concurrently, and must return when their context ends.
type Config struct {
	// Kubelet is the effective configuration, with all defaults set. The server
	// uses address, port, tlsMinVersion, tlsCipherSuites, tlsCurvePreferences,
	// enableDebuggingHandlers, enableSystemLogHandler and
	// enableProfilingHandler, and /configz returns all of it. It must not be
	// changed afterwards.
	Kubelet *kubelet.KubeletConfiguration
	// GetCertificate returns the serving certificate. It is called at least for
	// each full handshake, so the certificate can be renewed at any time.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Authn authenticates clients, Authz authorizes their requests.
	Authn *authn.Authenticator
	Authz *authz.Authorizer
	// Pods returns the node's pods with their newest statuses, in the order of
	// /pods. They must not be changed afterwards.
	Pods func() iter.Seq2[*v1.Pod, *v1.PodStatus]
	// Started returns the ID, without scheme, of a running container. It may be
	// newer than the pod's status.
	Started func(pod types.UID, container string) (id string, ok bool)
	// AwaitObserved waits, for a limited time, until a pod's status is that of its
	// containers: after a start of the agent the status of a restored pod is
	// ContainerCreating until its worker has observed it.
	AwaitObserved func(ctx context.Context, pod types.UID)
	// Runtime lists the running sandboxes and containers.
	Runtime Runtime
	// ContainerLog finds the log of a container.
	ContainerLog func(context.Context, LogQuery) (LogFile, error)
	// Checks are the checks of /healthz, in this order.
	Checks []Check
	// Summary writes the response of /stats/summary. An error that it returns
	// before it has written anything comes from reading the stats. With nil, the
	// path returns 404.
	Summary func(ctx context.Context, w io.Writer, onlyCPUAndMemory bool) error
	// Metrics, ResourceMetrics, CadvisorMetrics and ProbeMetrics write the
	// text of /metrics, /metrics/resource, /metrics/cadvisor and
	// /metrics/probes. With nil, the path returns 404.
	Metrics, ResourceMetrics, CadvisorMetrics, ProbeMetrics Text
	// Streaming serves /exec/, /attach/, /run/ and /portForward/ after path and
	// method were validated. It may hijack HTTP/1.1 connections, and must return
	// when the request's context ends.
	Streaming http.Handler
	// Profiling serves /debug/pprof/, for example profile.Handler.
	Profiling http.Handler
	// SystemLogs is the directory of /logs/; "" means /var/log.
	SystemLogs string
	Log        *slog.Logger
}

// Text writes metrics in the Prometheus text format.
type Text func(context.Context, io.Writer) error

// Check is a health check of the agent.
type Check = local.Check

// defaultSystemLogs is the kubelet's nodeLogDir.
const defaultSystemLogs = "/var/log"

// Server is the node's HTTPS API.
type Server struct {
	config       Config
	tls          *tls.Config
	guard        http.Handler
	exactPaths   map[string]http.Handler // serve any method, like the kubelet's
	prefixRoutes map[string]route        // by the first path element
	slots        slots
	deflate      *gzipPool
	listen       func(context.Context) (net.Listener, error)
}

// New returns a Server. It starts nothing.
func New(c Config) *Server {
	c.SystemLogs = cmp.Or(c.SystemLogs, defaultSystemLogs)
	s := &Server{config: c, deflate: newGzipPool()}
	s.slots = slots{make(slot, maxRequests), make(slot, maxFollowed), make(slot, maxSnapshots)}
	s.tls = s.tlsConfig()
	s.guard = &authz.Guard{Authn: c.Authn, Authz: c.Authz, Next: http.HandlerFunc(s.serveAuthorized), Log: c.Log}
	s.exactPaths, s.prefixRoutes = s.exactRoutes(), s.rootedRoutes()
	address := net.JoinHostPort(c.Kubelet.Address, strconv.Itoa(int(c.Kubelet.Port)))
	s.listen = func(ctx context.Context) (net.Listener, error) {
		lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveIdle / 4, Count: 4}}
		return lc.Listen(ctx, "tcp", address)
	}
	return s
}

// Initial and maximum backoff between attempts to listen. A node may get its address
// late, and an operator cannot use it until the API is served.
const (
	firstRetry   = time.Second
	longestRetry = 15 * time.Second
)

// Run serves the API until ctx ends, and returns nil after everything that it started
// has ended. When ctx ends, followed logs end at once, and other requests in flight have
// 2 s (shutdownTimeout). Errors of listening, such as an address that the node does not
// have yet, are logged and retried with backoff.
func (s *Server) Run(ctx context.Context) error {
	log := s.config.Log.With("address", s.config.Kubelet.Address, "port", s.config.Kubelet.Port)
	logged, retryIn := "", firstRetry
	for ctx.Err() == nil {
		l, err := s.listen(ctx)
		if err == nil {
			log.Info("serving kubelet API")
			logged, retryIn = "", firstRetry
			err = s.serve(ctx, l)
		}
		if text := fmt.Sprint(err); ctx.Err() == nil && text != logged {
			logged = text
			log.Warn("cannot serve kubelet API, will retry", "error", err,
				"remedy", "check that the address exists and that no other process has the port")
		}
		wait.Pause(ctx, retryIn)
		retryIn = min(2*retryIn, longestRetry)
	}
	return nil
}
