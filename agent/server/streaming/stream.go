// Package streaming serves the paths of the kubelet's HTTPS API that access
// containers: /exec, /attach, /portForward and /run. It parses their paths and queries
// (pkg/kubelet/server/server.go and
// k8s.io/cri-streaming/pkg/streaming/remotecommand in Kubernetes 1.36), connects to
// the streaming server of the container runtime, and owns the sessions: their limits,
// memory and timeouts.
//
// The runtime itself speaks SPDY/3.1 or WebSocket with the client. After the upgrade,
// bytes are forwarded unchanged; frames are only parsed to detect pings, for the idle
// timeout. So the runtime determines the supported protocols: in containerd 2.4,
// v4.channel.k8s.io and below, and portforward.k8s.io. The newer v5.channel.k8s.io over
// WebSocket, and SPDY in WebSocket, which the kubelet translates for the runtime, are
// not translated: the node must not declare ExtendWebSocketsToKubelet.
//
//	client ── TLS ──► ServeHTTP: parse, Find, Runtime.Exec ──► URL
//	   ▲                  │ dials it, forwards the upgrade
//	   └──── session ─────┴──► the runtime's streaming server
//
// Requests must be authenticated and authorized before.
package streaming

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Limits of a Handler.
const (
	// maxSessions limits the concurrent sessions, including those of /run. Further
	// requests get a 429.
	maxSessions = 64
	// answerTimeout limits the time until the runtime's streaming server responds to an
	// upgrade request.
	answerTimeout = 30 * time.Second
	// maxRuns limits the concurrent commands of /run: the runtime returns up to
	// 16 MiB for each, which are in memory until they are sent.
	maxRuns = 2
	// retryAfter is the Retry-After header for requests beyond a limit, in
	// seconds.
	retryAfter = "10"
)

// Errors of Config.Find, for errors.Is.
var (
	// ErrNotFound means that the pod, or the container in it, does not exist.
	ErrNotFound = errors.New("not found on this node")
	// ErrNotRunning means that the container, or the pod's sandbox, exists and is
	// not running.
	ErrNotRunning = errors.New("not running")
)

// Name identifies the target of a request by its path. It has only letters, digits,
// '.', '-' and '_', but comes from the client: the target may not exist.
type Name struct {
	Namespace, Pod string
	// UID is empty if the path has none, which means any pod of that name.
	UID string
	// Container is empty for port-forward.
	Container string
}

// String returns namespace/pod, or namespace/pod/container.
func (n Name) String() string {
	s := n.Namespace + "/" + n.Pod
	if n.Container != "" {
		s += "/" + n.Container
	}
	return s
}

// Found has the runtime's IDs of a Name.
type Found struct {
	// SandboxID is the pod's ready sandbox; it is used by port-forward only.
	SandboxID string
	// ContainerID is the running container of that name, of any kind: main,
	// init or ephemeral. It is used by all but port-forward.
	ContainerID string
}

// Runtime is the part of container.Runtime that the package uses.
type Runtime interface {
	container.Streams
	// ExecSync is the method of container.Containers.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// Config configures a Handler.
type Config struct {
	// Runtime prepares the streams.
	Runtime Runtime
	// Find returns the runtime's IDs of a name. It returns ErrNotFound if the pod
	// or container does not exist (a pod with another UID is another pod), and
	// ErrNotRunning, with the state in its text, if it is not running. The text is
	// sent to the client. Find may be called concurrently and may block until ctx
	// ends. It must not be nil.
	Find func(ctx context.Context, name Name) (Found, error)
	// IdleTimeout ends a session after that time without data other than pings in
	// both directions (streamingConnectionIdleTimeout); 0 means no timeout.
	IdleTimeout time.Duration
	// Log gets sessions (debug) and runtime failures (warning), never commands.
	Log *slog.Logger
}

// Handler serves the paths /exec/, /attach/, /run/ and /portForward/. It is
// safe for concurrent use.
type Handler struct {
	c             Config
	maxSessions   int
	answerTimeout time.Duration

	mu    sync.Mutex
	open  map[*slot]struct{}
	runs  int
	ended bool
	wait  sync.WaitGroup // one for each slot
}

// slot is a request's slot in the session limit. end ends the session, or the request
// that is about to start it, without blocking. A slot is guarded by the handler's lock.
type slot struct {
	run bool
	end func()
}

// New returns a Handler. It starts nothing.
func New(c Config) *Handler {
	return &Handler{c: c, maxSessions: maxSessions, answerTimeout: answerTimeout, open: make(map[*slot]struct{})}
}

// Run blocks until ctx ends. It then ends all sessions, waits for them and rejects
// further requests. An http.Server neither ends nor waits for hijacked connections.
// Run must not be called concurrently.
func (h *Handler) Run(ctx context.Context) {
	h.mu.Lock()
	h.ended = false
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.ended = true
	for s := range h.open {
		s.end()
	}
	h.mu.Unlock()
	h.wait.Wait()
}

func (h *Handler) acquire(run bool, end func()) (*slot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return nil, errEnded
	case len(h.open) >= h.maxSessions:
		return nil, &httpError{code: http.StatusTooManyRequests, text: fmt.Sprintf("limit of %d sessions of exec, attach and port-forward reached: end one, or try again later", h.maxSessions)}
	case run && h.runs >= maxRuns:
		return nil, &httpError{code: http.StatusTooManyRequests, text: fmt.Sprintf("limit of %d commands of /run reached: try again later, or use exec", maxRuns)}
	}
	s := &slot{run: run, end: end}
	h.open[s] = struct{}{}
	if run {
		h.runs++
	}
	h.wait.Add(1)
	return s, nil
}

// setEnd replaces the end function of a slot. It reports false if Run has already
// ended the slot.
func (h *Handler) setEnd(s *slot, end func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.end = end
	return !h.ended
}

func (h *Handler) release(s *slot) {
	h.mu.Lock()
	delete(h.open, s)
	if s.run {
		h.runs--
	}
	h.mu.Unlock()
	h.wait.Done()
}

// ServeHTTP serves one request. It returns after the upgrade, because the memory of the
// HTTP server for a request would double the memory of an idle session. The session
// lasts until either side or Run ends it.
//
// TCP keepalive, which Go's listeners enable, detects clients that have disappeared.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, up, err := read(r)
	if err == nil {
		err = h.serve(w, r, asked, up)
	}
	if err == nil {
		return
	}
	refused := httpErrorOf(err)
	if refused.code >= http.StatusInternalServerError && asked.verb != verbRun && r.Context().Err() == nil {
		h.c.Log.Warn("cannot start session", "verb", asked.verb, "target", asked.name.String(), "error", err)
	}
	refused.write(w)
}

func read(r *http.Request) (request, *upgrade, error) {
	asked, err := parsePath(r.Method, r.URL.Path)
	if err != nil {
		return asked, nil, err
	}
	if asked.verb == verbRun {
		return asked, nil, asked.parseQuery(r.URL.RawQuery, false)
	}
	up, err := upgradeOf(r)
	if err != nil {
		return asked, nil, err
	}
	return asked, up, asked.parseQuery(r.URL.RawQuery, up.webSocket)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, asked request, up *upgrade) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	place, err := h.acquire(asked.verb == verbRun, cancel)
	if err != nil {
		return err
	}
	handed := false
	defer func() {
		if !handed {
			h.release(place)
		}
	}()
	found, err := h.c.Find(ctx, asked.name)
	if err != nil {
		return err
	}
	if asked.verb == verbRun {
		return h.run(ctx, w, found.ContainerID, asked.cmd)
	}
	raw, err := h.prepare(ctx, asked, found)
	if err != nil {
		return err
	}
	to, err := targetOf(raw)
	if err != nil {
		return err
	}
	a, err := dialUpgrade(ctx, to, r.Method, up, h.answerTimeout)
	if err != nil {
		return err
	}
	s, err := hijack(w, a, h.c.IdleTimeout)
	if err != nil {
		return err
	}
	if !h.setEnd(place, s.end) {
		s.end()
	}
	handed = true
	go func() { // Run waits for it by its slot
		defer h.release(place)
		h.c.Log.Debug("session started", "verb", asked.verb, "target", asked.name.String())
		s.run()
		h.c.Log.Debug("session ended", "verb", asked.verb, "target", asked.name.String())
	}()
	return nil
}

// prepare gets the URL of the runtime's streaming server for a request.
func (h *Handler) prepare(ctx context.Context, asked request, found Found) (string, error) {
	switch asked.verb {
	case verbExec:
		return h.c.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: found.ContainerID, Cmd: asked.cmd,
			Stdin: asked.stdin, Stdout: asked.stdout, Stderr: asked.stderr, Tty: asked.tty,
		})
	case verbAttach:
		return h.c.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: found.ContainerID,
			Stdin:       asked.stdin, Stdout: asked.stdout, Stderr: asked.stderr, Tty: asked.tty,
		})
	default:
		return h.c.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: found.SandboxID, Port: asked.ports})
	}
}

// run serves /run like the kubelet: it sends stdout, then stderr, as text. Of each it sends
// the first container.MaxExecOutput bytes. A nonzero exit code is an error with the code
// and stderr. The command may run until the client disconnects or Handler.Run ends.
func (h *Handler) run(ctx context.Context, w http.ResponseWriter, containerID string, cmd []string) error {
	stdout, stderr, code, err := h.c.Runtime.ExecSync(ctx, containerID, cmd, 0)
	if err != nil {
		return err
	}
	if code != 0 {
		return &httpError{code: http.StatusInternalServerError, text: fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(cmd, " "), code, stderr[:min(len(stderr), maxBody)])}
	}
	plainText(w.Header())
	_, _ = w.Write(stdout) // fails only if the client has disconnected
	_, _ = w.Write(stderr)
	return nil
}
