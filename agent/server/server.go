package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authz"
)

// Config is what a Server needs. The funcs are called for each request, by
// several at once, and end with their context. What a func that may be nil
// would tell is not found.
type Config struct {
	// Kubelet is the effective configuration, every field with a default set:
	// address, port, tlsMinVersion, tlsCipherSuites, tlsCurvePreferences,
	// enableDebuggingHandlers, enableSystemLogHandler and
	// enableProfilingHandler are heeded, and /configz shows it as a whole. It
	// must not be changed afterwards.
	Kubelet *kubelet.KubeletConfiguration
	// GetCertificate answers the serving certificate for each handshake, so
	// that it may be renewed at any time.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Authn and Authz say who calls and what they may do.
	Authn *authn.Authenticator
	Authz *authz.Authorizer
	// Pods are the node's pods with their newest statuses, in the order to be
	// shown. They must not be changed afterwards.
	Pods func() iter.Seq2[*v1.Pod, *v1.PodStatus]
	// Started answers the ID, without a scheme, of a container that runs,
	// where that may be newer than the pod's status. May be nil.
	Started func(pod types.UID, container string) (id string, ok bool)
	// Runtime is asked for what runs.
	Runtime Runtime
	// ContainerLog finds the log of a container.
	ContainerLog func(context.Context, LogQuery) (LogFile, error)
	// Checks are what /healthz goes by, in this order.
	Checks []Check
	// Summary writes the answer of /stats/summary. Before anything is
	// written, an error is one of what it reads. May be nil.
	Summary func(ctx context.Context, w io.Writer, onlyCPUAndMemory bool) error
	// Metrics, ResourceMetrics, CadvisorMetrics and ProbeMetrics write the
	// text of /metrics, /metrics/resource, /metrics/cadvisor and
	// /metrics/probes. May be nil.
	Metrics, ResourceMetrics, CadvisorMetrics, ProbeMetrics Text
	// Streaming answers /exec/, /attach/, /run/ and /portForward/ once path
	// and method are right. It may hijack connections of HTTP/1.1, and must
	// end with the request's context. May be nil.
	Streaming http.Handler
	// Profiling answers /debug/pprof/, such as package profile's; nil is that
	// profiling is disabled.
	Profiling http.Handler
	// SystemLogs is the folder of /logs/; "" is /var/log.
	SystemLogs string
	Log        *slog.Logger
}

// Text writes metrics in the text format of Prometheus.
type Text func(context.Context, io.Writer) error

// Check is one condition of the agent's health.
type Check struct {
	// Name is a path element, such as syncloop.
	Name string
	// Healthy answers nil or what is wrong.
	Healthy func(now time.Time) error
}

// defaultSystemLogs is the kubelet's nodeLogDir.
const defaultSystemLogs = "/var/log"

// Server is the node's HTTPS API.
type Server struct {
	config  Config
	tls     *tls.Config
	guard   http.Handler
	exact   map[string]http.Handler // answer any method, as the kubelet's do
	rooted  map[string]family       // by the first part of their path
	slots   slots
	deflate *deflaters
	listen  func(context.Context) (net.Listener, error)
}

// New checks the configuration. It starts nothing.
func New(c Config) (*Server, error) {
	if c.Kubelet == nil || c.GetCertificate == nil || c.Authn == nil || c.Authz == nil || c.Pods == nil || c.Runtime == nil ||
		c.ContainerLog == nil || c.Log == nil {
		return nil, errors.New("node API: Kubelet, GetCertificate, Authn, Authz, Pods, Runtime, ContainerLog and Log are required")
	}
	for _, check := range c.Checks {
		if check.Name == "" || strings.Contains(check.Name, "/") || check.Healthy == nil {
			return nil, fmt.Errorf("node API: health check %q needs a name without slashes and a func", check.Name)
		}
	}
	if c.SystemLogs == "" {
		c.SystemLogs = defaultSystemLogs
	}
	settings, err := tlsSettings(c.Kubelet)
	if err != nil {
		return nil, fmt.Errorf("node API: %w", err)
	}
	for _, name := range settings.insecure {
		c.Log.Warn("a cipher suite of tlsCipherSuites is known to be weak: leave it out", "suite", name)
	}
	s := &Server{config: c, slots: newSlots(), deflate: newDeflaters()}
	s.tls = s.handshakes(settings)
	s.guard = authz.NewGuard(c.Authn, c.Authz, http.HandlerFunc(s.admitted), c.Log)
	s.exact, s.rooted = s.exactRoutes(), s.rootedRoutes()
	address := net.JoinHostPort(c.Kubelet.Address, strconv.Itoa(int(c.Kubelet.Port)))
	s.listen = func(ctx context.Context) (net.Listener, error) {
		lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: quiet, Interval: quiet / 4, Count: 4}}
		return lc.Listen(ctx, "tcp", address)
	}
	return s, nil
}

// First and longest wait before the next attempt to listen: a board gets its
// address late, and is of no use to an operator until it answers.
const (
	firstRetry   = time.Second
	longestRetry = 15 * time.Second
)

// Run answers until ctx ends, and returns nil when everything that it started
// is done. Answers that are under way then get a short while; followed logs
// end at once. What keeps it from listening, such as an address that the
// board does not have yet, is logged and tried again.
func (s *Server) Run(ctx context.Context) error {
	log := s.config.Log.With("address", s.config.Kubelet.Address, "port", s.config.Kubelet.Port)
	told, wait := "", firstRetry
	for ctx.Err() == nil {
		l, err := s.listen(ctx)
		if err == nil {
			log.Info("answering the node's API")
			told, wait = "", firstRetry
			err = s.serve(ctx, l)
		}
		if text := fmt.Sprint(err); ctx.Err() == nil && text != told {
			told = text
			log.Warn("the node's API cannot be answered, which is tried again until it can: the address or the port may be another's, or not there yet", "error", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		wait = min(2*wait, longestRetry)
	}
	return nil
}
