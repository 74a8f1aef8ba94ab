// Package streaming is the part of the kubelet's HTTPS API that goes into
// containers: /exec, /attach, /portForward and /run. It owns what their paths
// and queries mean (pkg/kubelet/server/server.go and
// k8s.io/cri-streaming/pkg/streaming/remotecommand in Kubernetes 1.36), the
// way to the streaming server of the container runtime, and the sessions: how
// many there are, what one costs, and when it ends.
//
// The runtime speaks SPDY/3.1 or WebSocket with the client itself; after the
// upgrade bytes are passed on as they are, and of their frames it is only seen
// which are pings, for the idle time. So a client gets what the runtime can:
// v4.channel.k8s.io and below, and portforward.k8s.io, in containerd 2.4. The
// newer v5.channel.k8s.io over WebSocket, and SPDY inside WebSocket, which a
// kubelet translates for the runtime, are not translated here: the node must
// not declare ExtendWebSocketsToKubelet.
//
//	client ── TLS ──► ServeHTTP: parse, Find, Runtime.Exec ──► URL
//	   ▲                  │ dials it, passes the upgrade on
//	   └──── session ─────┴──► the runtime's streaming server
//
// Who calls has been authenticated and authorised before.
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

// Defaults and limits of a Handler.
const (
	// DefaultMaxSessions is how many sessions there may be at once.
	DefaultMaxSessions = 64
	// DefaultAnswerTimeout is how long the runtime's streaming server may take
	// for its answer to the upgrade.
	DefaultAnswerTimeout = 30 * time.Second
	// maxRuns is how many commands of /run there may be at once: the runtime
	// answers up to 16 MiB for each, which are in memory until they are sent.
	maxRuns = 2
	// retryAfter is what clients beyond a limit are told to wait, in seconds.
	retryAfter = "10"
)

// Errors that Config.Find answers with, for errors.Is.
var (
	// ErrNotFound says that there is no such pod, or no such container in it.
	ErrNotFound = errors.New("not found on this node")
	// ErrNotRunning says that the container, or the pod's sandbox, is known
	// and does not run.
	ErrNotRunning = errors.New("not running")
)

// Name is what a request's path names. It is made of letters, digits, '.',
// '-' and '_' only, but it is the client's: nothing of that name need exist.
type Name struct {
	Namespace, Pod string
	// UID is empty where the path has none: any pod of that name.
	UID string
	// Container is empty for port-forward.
	Container string
}

// String is namespace/pod, and the container where there is one.
func (n Name) String() string {
	s := n.Namespace + "/" + n.Pod
	if n.Container != "" {
		s += "/" + n.Container
	}
	return s
}

// Found is what the runtime knows a Name by.
type Found struct {
	// SandboxID is the pod's ready sandbox; it is used by port-forward only.
	SandboxID string
	// ContainerID is the running container of that name, of any kind: main,
	// init or ephemeral. It is used by all but port-forward.
	ContainerID string
}

// Runtime is the part of the container runtime's driver that is used here.
type Runtime interface {
	container.Streams
	// ExecSync is that of container.Containers.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// Config is what New needs.
type Config struct {
	// Runtime prepares the streams. It must not be nil.
	Runtime Runtime
	// Find answers what the runtime runs under a name: ErrNotFound for a pod
	// or a container that there is not (a pod with another UID is another
	// pod), ErrNotRunning, with the state in its text, for what does not run.
	// The text goes to the client. Find may be called concurrently and may
	// block until ctx ends. It must not be nil.
	Find func(ctx context.Context, name Name) (Found, error)
	// IdleTimeout ends a session over which nothing but pings went either way
	// for that long (streamingConnectionIdleTimeout); 0 never does.
	IdleTimeout time.Duration
	// AnswerTimeout limits the way to the runtime's answer to an upgrade; 0 is
	// DefaultAnswerTimeout.
	AnswerTimeout time.Duration
	// MaxSessions is how many sessions there may be at once, those of /run
	// with them; 0 is DefaultMaxSessions. Further ones are answered with 429.
	MaxSessions int
	// Log is told of sessions (debug) and of a runtime that fails (warning),
	// never of commands. It must not be nil.
	Log *slog.Logger
}

// Handler serves the paths /exec/, /attach/, /run/ and /portForward/. It is
// safe for concurrent use.
type Handler struct {
	c Config

	mu    sync.Mutex
	open  map[*slot]struct{}
	runs  int
	ended bool
	wait  sync.WaitGroup // one for each slot
}

// slot is a request's place among the sessions; end ends the session, or what
// leads to it, soon. It is guarded by the handler's lock.
type slot struct {
	run bool
	end func()
}

// New checks the configuration and starts nothing.
func New(c Config) (*Handler, error) {
	switch {
	case c.Runtime == nil:
		return nil, errors.New("stream: no runtime")
	case c.Find == nil:
		return nil, errors.New("stream: nothing to find pods with")
	case c.Log == nil:
		return nil, errors.New("stream: no logger")
	case c.IdleTimeout < 0 || c.AnswerTimeout < 0 || c.MaxSessions < 0:
		return nil, fmt.Errorf("stream: negative limit (idle %v, answer %v, sessions %d)", c.IdleTimeout, c.AnswerTimeout, c.MaxSessions)
	}
	if c.AnswerTimeout == 0 {
		c.AnswerTimeout = DefaultAnswerTimeout
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = DefaultMaxSessions
	}
	return &Handler{c: c, open: make(map[*slot]struct{})}, nil
}

// Run blocks until ctx ends, then ends all sessions, waits for them and
// refuses further requests. An http.Server knows nothing of the sessions: it
// neither ends them nor waits for them. Only one Run goes on at a time.
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

// enter takes a place; end must not block.
func (h *Handler) enter(run bool, end func()) (*slot, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return nil, errEnded
	case len(h.open) >= h.c.MaxSessions:
		return nil, &refusal{code: http.StatusTooManyRequests, text: fmt.Sprintf("this node has its %d sessions of exec, attach and port-forward already: end one, or try again later", h.c.MaxSessions)}
	case run && h.runs >= maxRuns:
		return nil, &refusal{code: http.StatusTooManyRequests, text: fmt.Sprintf("this node runs its %d commands of /run already: try again later, or use exec", maxRuns)}
	}
	s := &slot{run: run, end: end}
	h.open[s] = struct{}{}
	if run {
		h.runs++
	}
	h.wait.Add(1)
	return s, nil
}

// become has a place ended by another function from now on; false says that
// it has been ended already.
func (h *Handler) become(s *slot, end func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.end = end
	return !h.ended
}

func (h *Handler) leave(s *slot) {
	h.mu.Lock()
	delete(h.open, s)
	if s.run {
		h.runs--
	}
	h.mu.Unlock()
	h.wait.Done()
}

// ServeHTTP answers one request. Once the connection is upgraded it returns:
// what the HTTP server holds for a request would double the memory of an
// idle session. The session then lives until either side or Run ends it.
//
// A client that vanishes without a word is found by TCP's keepalive, which
// Go's listeners turn on.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, up, err := read(r)
	if err == nil {
		err = h.serve(w, r, asked, up)
	}
	if err == nil {
		return
	}
	refused := refusalOf(err)
	if refused.code >= http.StatusInternalServerError && asked.verb != verbRun && r.Context().Err() == nil {
		h.c.Log.Warn("a session could not begin", "verb", asked.verb, "of", asked.name.String(), "error", err)
	}
	refused.write(w)
}

// read is all that a request says.
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
	place, err := h.enter(asked.verb == verbRun, cancel)
	if err != nil {
		return err
	}
	handed := false
	defer func() {
		if !handed {
			h.leave(place)
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
	a, err := ask(ctx, to, r.Method, up, h.c.AnswerTimeout)
	if err != nil {
		return err
	}
	s, err := takeOver(w, a, h.c.IdleTimeout)
	if err != nil {
		return err
	}
	if !h.become(place, s.end) {
		s.end()
	}
	handed = true
	go func() { // Run waits for it through its place
		defer h.leave(place)
		h.c.Log.Debug("a session begins", "verb", asked.verb, "of", asked.name.String())
		s.run()
		h.c.Log.Debug("a session has ended", "verb", asked.verb, "of", asked.name.String())
	}()
	return nil
}

// prepare asks the runtime for the URL of its streaming server.
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

// run answers /run as the kubelet does: stdout, then stderr, as text, of each
// the first container.MaxExecOutput bytes; what ends with a code other than 0
// is an error that tells the code and stderr. The command has the time until
// the client leaves.
func (h *Handler) run(ctx context.Context, w http.ResponseWriter, containerID string, cmd []string) error {
	stdout, stderr, code, err := h.c.Runtime.ExecSync(ctx, containerID, cmd, 0)
	if err != nil {
		return err
	}
	if code != 0 {
		return &refusal{code: http.StatusInternalServerError, text: fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(cmd, " "), code, stderr[:min(len(stderr), maxBody)])}
	}
	plainText(w.Header())
	_, _ = w.Write(stdout) // who has left does not read
	_, _ = w.Write(stderr)
	return nil
}
