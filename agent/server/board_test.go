package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authz"
)

// board is a kubelet API with a fake cluster.
type board struct {
	t       testing.TB
	ca      *apiservertest.Authority
	cluster *apiservertest.Server
	serving atomic.Pointer[tls.Certificate]
	config  Config
	server  *Server
	url     string
	address string

	mu   sync.Mutex
	pods []*v1.Pod // with their statuses
	logs map[string]LogFile
	asks []LogQuery
	// started are IDs of containers by pod UID/NAME.
	started map[string]string
}

// canned is a Runtime with fixed lists.
type canned struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	err        error
}

func (c *canned) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	var out []*runtimeapi.PodSandbox
	for _, s := range c.sandboxes {
		if s.State == f.State.State {
			out = append(out, s)
		}
	}
	return out, c.err
}

func (c *canned) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var out []*runtimeapi.Container
	for _, s := range c.containers {
		if s.State == f.State.State {
			out = append(out, s)
		}
	}
	return out, c.err
}

func labels(namespace, name, uid string) map[string]string {
	return map[string]string{container.LabelPodNamespace: namespace, container.LabelPodName: name, container.LabelPodUID: uid}
}

func yes(b bool) *bool { return &b }

// running returns a pod with running containers.
func running(namespace, name string, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.Unix(1000, 0),
	}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c, Image: "busybox"})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
			Name: c, ContainerID: "containerd://" + name + "-" + c, State: v1.ContainerState{Running: new(v1.ContainerStateRunning)},
		})
	}
	p.Status.Phase = v1.PodRunning
	return p
}

// newBoard returns a board with one pod, default/web. It does not listen yet.
func newBoard(t testing.TB) *board {
	t.Helper()
	b := &board{t: t, ca: apiservertest.NewAuthority(t, "kubernetes"), cluster: apiservertest.New(), logs: map[string]LogFile{}}
	own := b.ca.Server()
	b.serving.Store(&own)
	b.pods = []*v1.Pod{running("default", "web", "app", "side")}
	text := func(content string) Text {
		return func(_ context.Context, w io.Writer) error {
			_, err := io.WriteString(w, content)
			return err
		}
	}
	b.config = Config{
		Kubelet: &kubelet.KubeletConfiguration{
			Address: "127.0.0.1", EnableDebuggingHandlers: yes(true), EnableSystemLogHandler: yes(true), EnableProfilingHandler: yes(true),
			MaxPods: 110,
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return b.serving.Load(), nil },
		Pods:           b.list,
		Runtime: &canned{
			sandboxes: []*runtimeapi.PodSandbox{
				{Id: "s", Labels: labels("default", "web", "1")},
				{Id: "old", Labels: labels("default", "old", "2"), State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
			},
			containers: []*runtimeapi.Container{
				{Id: "c", Labels: labels("default", "web", "1"), State: runtimeapi.ContainerState_CONTAINER_RUNNING,
					Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "sha256:1"}},
				{Id: "x", Labels: labels("default", "web", "1"), State: runtimeapi.ContainerState_CONTAINER_EXITED,
					Metadata: &runtimeapi.ContainerMetadata{Name: "init"}},
			},
		},
		ContainerLog: b.log,
		Started: func(uid types.UID, container string) (string, bool) {
			id, ok := b.started[string(uid)+"/"+container]
			return id, ok
		},
		AwaitObserved: func(context.Context, types.UID) {},
		Checks:        []Check{{Name: "syncloop", Healthy: func(time.Time) error { return nil }}},
		Summary: func(_ context.Context, w io.Writer, only bool) error {
			_, err := fmt.Fprintf(w, `{"only":%t}`, only)
			return err
		},
		Metrics: text("a 1\n"), ResourceMetrics: text("b 1\n"), CadvisorMetrics: text("c 1\n"), ProbeMetrics: text("d 1\n"),
		Streaming: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "stream "+r.URL.Path)
		}),
		Profiling: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "profile "+r.URL.Path)
		}),
		SystemLogs: t.TempDir(),
		Log:        slog.New(slog.DiscardHandler),
	}
	b.trust(authn.Config{CacheTTL: 2 * time.Minute})
	b.allow(kubelet.KubeletAuthorizationModeWebhook)
	return b
}

// trust sets the authentication.
func (b *board) trust(c authn.Config) {
	b.t.Helper()
	c.ClientCAFile = filepath.Join(b.t.TempDir(), "ca.crt")
	if err := os.WriteFile(c.ClientCAFile, b.ca.PEM(), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if c.Review == nil {
		c.Review = b.cluster.TokenReview
	}
	c.Log = slog.New(slog.DiscardHandler)
	var err error
	if b.config.Authn, err = authn.New(c); err != nil {
		b.t.Fatal(err)
	}
}

// allow sets the authorization mode.
func (b *board) allow(mode kubelet.KubeletAuthorizationMode) {
	b.t.Helper()
	b.config.Authz = authz.New(authz.Config{
		Mode: mode, NodeName: "board", AllowedTTL: 5 * time.Minute, DeniedTTL: 30 * time.Second, Log: slog.New(slog.DiscardHandler),
		Review: func(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
			return b.cluster.AccessReview(ctx, r)
		},
	})
}

func (b *board) list() iter.Seq2[*v1.Pod, *v1.PodStatus] {
	b.mu.Lock()
	pods := b.pods
	b.mu.Unlock()
	return func(yield func(*v1.Pod, *v1.PodStatus) bool) {
		for _, p := range pods {
			plain := *p
			plain.Status = v1.PodStatus{}
			if !yield(&plain, &p.Status) {
				return
			}
		}
	}
}

func (b *board) log(_ context.Context, q LogQuery) (LogFile, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asks = append(b.asks, q)
	file, ok := b.logs[q.ID]
	if !ok {
		return LogFile{}, errors.New("no such container")
	}
	return file, nil
}

// build returns the server.
func (b *board) build() *Server {
	b.t.Helper()
	b.server = New(b.config)
	return b.server
}

// start builds the server and serves on loopback until stop is called, which waits for
// its end, or the test ends.
func (b *board) start() (stop func()) {
	b.t.Helper()
	s := b.build()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.address = l.Addr().String()
	b.url = "https://" + b.address
	return b.run(s, l)
}

func (b *board) run(s *Server, l net.Listener) (stop func()) {
	s.listen = func(context.Context) (net.Listener, error) { return l, nil }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run = %v", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// pipes is a network in memory for virtual time.
type pipes struct {
	b      *board
	coming chan net.Conn
	closed chan struct{}
	once   sync.Once
	stop   func()
}

// pipes serves the board on a new network in memory.
func (b *board) pipes() *pipes {
	b.t.Helper()
	p := &pipes{b: b, coming: make(chan net.Conn), closed: make(chan struct{})}
	b.url = "https://127.0.0.1"
	p.stop = b.run(b.build(), p)
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.coming:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return new(net.TCPAddr) }

// dial returns a connection before the TLS handshake.
func (p *pipes) dial() net.Conn {
	ours, theirs := newWired()
	p.coming <- theirs
	return ours
}

// shake returns a connection after the TLS handshake, for HTTP/1.1.
func (p *pipes) shake(shown ...tls.Certificate) *tls.Conn {
	p.b.t.Helper()
	c := tls.Client(p.dial(), p.b.tls(shown...))
	if err := c.Handshake(); err != nil {
		p.b.t.Fatal(err)
	}
	return c
}

// client returns a client whose connections buffer 64 kB of unread data.
func (p *pipes) client(protocol string, shown ...tls.Certificate) *client {
	c := p.b.over(protocol, shown...)
	transport := c.http.Transport.(*http.Transport)
	transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil }
	return c
}

// client is a client with an optional certificate and token.
type client struct {
	http  http.Client
	token string
}

func (b *board) client(token string, shown ...tls.Certificate) *client {
	b.t.Helper()
	c := &client{token: token}
	transport := &http.Transport{TLSClientConfig: b.tls(shown...), ForceAttemptHTTP2: true, DisableCompression: true}
	b.t.Cleanup(transport.CloseIdleConnections)
	c.http = http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

// over returns a client for one HTTP version.
func (b *board) over(protocol string, shown ...tls.Certificate) *client {
	b.t.Helper()
	c := b.client("", shown...)
	transport := c.http.Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
	return c
}

// tls returns a client's TLS configuration.
func (b *board) tls(shown ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.ca.PEM())
	return &tls.Config{RootCAs: roots, Certificates: shown, ServerName: "127.0.0.1"}
}

func (b *board) admin() *client {
	b.t.Helper()
	return b.client("", b.adminCertificate())
}

func (b *board) adminCertificate() tls.Certificate {
	return b.ca.Client("kubernetes-admin", []string{"system:masters"}, nil)
}

// answer is a response.
type answer struct {
	code   int
	header http.Header
	text   string
}

// send sends a request. The caller must close the response.
func (b *board) send(ctx context.Context, c *client, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, b.url+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(request)
}

func (b *board) ask(c *client, method, path string) answer {
	b.t.Helper()
	response, err := b.send(b.t.Context(), c, method, path, nil, nil)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return b.read(response)
}

func (b *board) read(response *http.Response) answer {
	b.t.Helper()
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(data)}
}

// decoded decodes a JSON body.
func decoded[T any](t testing.TB, text string) T {
	t.Helper()
	var out T
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if d.More() {
		t.Fatalf("more than one value in %q", text)
	}
	return out
}
