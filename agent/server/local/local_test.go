package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
)

func TestQuestionsAndAnswers(t *testing.T) {
	seen := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	events := []event.Event{{Pod: pod.Ref{UID: "1", Namespace: "default", Name: "web-board"}, Type: "Normal", Reason: "Started", Message: "m", Count: 2, First: seen, Last: seen}}
	pods := []Pod{
		{Pod: newPod("default", "web-board"), WorkerState: "syncing", MemoryBytes: 1 << 40, Containers: []Container{{Name: "c", ID: "x", LogPath: "/l", MemoryBytes: 3}}},
		{Pod: newPod("kube-system", "dns-board"), WorkerState: "terminating"},
	}
	c := start(t, Config{
		Pods:   func(context.Context) []Pod { return pods },
		Events: func() []event.Event { return events },
	})
	for _, tt := range []struct {
		name string
		want []Pod
	}{
		{"", pods},
		{"web", pods[:1]},
		{"kube-system/", pods[1:]},
		{"kube-system/dns-board", pods[1:]},
		{"b", []Pod{}},
		{"a&name=web /?", []Pod{}},
	} {
		t.Run("pods named "+tt.name, func(t *testing.T) {
			got, err := c.Pods(t.Context(), tt.name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
	got, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(events, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	st, err := c.Status(t.Context())
	if err != nil || st.PID != os.Getpid() || st.Kubelet == "" {
		t.Errorf("status %+v, %v", st, err)
	}
	v, err := get[Version](t.Context(), c, PathVersion)
	if err != nil || v != st.Version {
		t.Errorf("version %+v, %v", v, err)
	}
}

func TestNothingIsAnEmptyList(t *testing.T) {
	c := start(t, Config{})
	for _, path := range []string{PathPods, PathEvents} {
		resp, err := c.http.Get("http://tinylet" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "[]\n" {
			t.Errorf("%s answered %q, %v", path, body, err)
		}
	}
}

func TestNoContainersAreAnEmptyList(t *testing.T) {
	p := Pod{Pod: newPod("default", "web")}
	(&PodLister{}).measure(&p, nil)
	if text, err := json.Marshal(p); err != nil || !strings.Contains(string(text), `"containers":[]}`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestMetrics(t *testing.T) {
	for name, row := range map[string]struct {
		metrics func(context.Context, io.Writer) error
		want    string
	}{
		"one": {func(_ context.Context, w io.Writer) error {
			out := metrics.NewStream(w)
			out.Family(metrics.KindCounter, "a_total", "A.")
			out.Sample(7)
			return out.Flush()
		}, "# HELP a_total A.\n# TYPE a_total counter\na_total 7\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, Config{Metrics: row.metrics})
			var got bytes.Buffer
			if err := c.Metrics(t.Context(), &got); err != nil || got.String() != row.want {
				t.Errorf("metrics %q, %v; want %q", got.String(), err, row.want)
			}
			resp, err := c.http.Get("http://tinylet" + PathMetrics)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != metrics.ContentType {
				t.Errorf("answered %s, %s", resp.Status, kind)
			}
		})
	}
	c := start(t, Config{Metrics: func(_ context.Context, w io.Writer) error {
		_, _ = w.Write(make([]byte, 16<<10)) // more than HTTP holds back
		return io.ErrClosedPipe
	}})
	if err := c.Metrics(t.Context(), io.Discard); err == nil {
		t.Error("a text that was cut off is taken for whole")
	}
	if err := NewClient(filepath.Join(t.TempDir(), "none")).Metrics(t.Context(), io.Discard); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without an agent: %v", err)
	}
}

func TestSocketModesAndEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tinylet")
	path := filepath.Join(dir, "tinylet.sock")
	ctx, cancel := context.WithCancel(t.Context())
	wait := run(ctx, t, Config{SocketPath: path})
	for _, p := range []struct {
		path string
		mode os.FileMode
	}{{dir, 0o700 | os.ModeDir}, {path, 0o600 | os.ModeSocket}} {
		if info, err := os.Stat(p.path); err != nil || info.Mode() != p.mode {
			t.Errorf("%s has mode %v, %v", p.path, info.Mode(), err)
		}
	}
	cancel()
	if err := wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if _, err := NewClient(path).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

func TestSocketOfAKilledAgentIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tinylet.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := NewClient(path).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("stale socket: %v", err)
	}
	c := start(t, Config{SocketPath: path})
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOneAgentOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "tinylet.sock")
	first, err := ClaimNode(path, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if c, err := ClaimNode(path, ""); !errors.Is(err, ErrOtherAgent) {
			t.Errorf("a second claim is %v, %v", c, err)
		}
	}
	first.Release()
	first.Release()
	second, err := ClaimNode(path, "")
	if err != nil {
		t.Fatalf("claim after a release: %v", err)
	}
	second.Release()
}

// TestKubeletRuns claims a node on which a kubelet listens for device plugins, and one on
// which it has left its socket.
func TestKubeletRuns(t *testing.T) {
	path, socket := filepath.Join(t.TempDir(), "tinylet.sock"), filepath.Join(t.TempDir(), "kubelet.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if c, err := ClaimNode(path, socket); !errors.Is(err, ErrOtherAgent) || !strings.Contains(err.Error(), socket) {
		t.Errorf("claim beside a kubelet is %v, %v", c, err)
	}
	l.Close()
	if _, err := os.Lstat(socket); err != nil {
		t.Fatal(err)
	}
	c, err := ClaimNode(path, socket)
	if err != nil {
		t.Fatalf("claim after the kubelet has ended: %v", err)
	}
	c.Release()
}

// TestClaimThatCannotBeMade has no directory for the lock, as on a node whose
// /run is read-only: it is unknown whether another agent is running.
func TestClaimThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "tinylet.sock")
	if err := os.Symlink(file, link+".lock"); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"no folder": file + "/tinylet.sock", "a symbolic link": link} {
		c, err := ClaimNode(path, "")
		if err == nil || errors.Is(err, ErrOtherAgent) {
			t.Fatalf("%s: claim is %v, %v", name, c, err)
		}
		for _, part := range []string{filepath.Dir(path), "two agents", "socketPath"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error does not name %q: %v", name, part, err)
			}
		}
	}
}

func TestSocketNameIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tinylet.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Config{SocketPath: path})
	if l, err := s.listenSocket(t.Context()); err == nil {
		l.Close()
		t.Error("a file was replaced")
	}
}

func TestStrangersAreRefused(t *testing.T) {
	s := newServer(t, Config{})
	srv := &http.Server{Handler: s.socket(), ConnContext: withConn}
	l, err := net.Listen("tcp", "127.0.0.1:0") // no credentials on TCP
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(l)
	defer srv.Close()
	resp, err := http.Get("http://" + l.Addr().String() + PathPods)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
	for _, tt := range []struct {
		peer uint32
		own  int
		want bool
	}{{0, 0, true}, {0, 1000, true}, {1000, 1000, true}, {1000, 0, false}, {1<<32 - 1, -1, false}} {
		if got := allowedUID(tt.peer, tt.own); got != tt.want {
			t.Errorf("allowedUID(%d, %d) = %v", tt.peer, tt.own, got)
		}
	}
}

func TestHealthz(t *testing.T) {
	var mu sync.Mutex
	var stuck error
	s := newServer(t, Config{Checks: []Check{
		{Name: "syncloop", Healthy: func(time.Time) error { mu.Lock(); defer mu.Unlock(); return stuck }},
		{Name: "runtime", Healthy: func(time.Time) error { return nil }},
	}})
	tests := []struct {
		name, path string
		stuck      error
		code       int
		want       string
	}{
		{name: "all well", path: "/healthz", code: 200, want: "ok"},
		{name: "ping", path: "/healthz/ping", code: 200, want: "ok"},
		{name: "verbose", path: "/healthz?verbose", code: 200, want: "[+]ping ok\n[+]syncloop ok\n[+]runtime ok\nhealthz check passed\n"},
		{name: "failing", path: "/healthz", stuck: errors.New("stood still"), code: 500, want: "[+]ping ok\n[-]syncloop failed: stood still\n[+]runtime ok\nhealthz check failed\n"},
		{name: "failing one", path: "/healthz/syncloop", stuck: errors.New("stood still"), code: 500, want: "syncloop failed: stood still\n"},
		{name: "other one", path: "/healthz/runtime", stuck: errors.New("stood still"), code: 200, want: "ok"},
		{name: "excluded", path: "/healthz?exclude=syncloop", stuck: errors.New("stood still"), code: 200, want: "ok"},
		{name: "unknown", path: "/healthz/nothing", code: 404, want: "404 page not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mu.Lock()
			stuck = tt.stuck
			mu.Unlock()
			w := &recorded{header: http.Header{}, code: 200}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://board"+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.healthz().ServeHTTP(w, r)
			if w.code != tt.code || w.body.String() != tt.want {
				t.Errorf("answered %d %q, want %d %q", w.code, w.body.String(), tt.code, tt.want)
			}
		})
	}
}

type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(code int)        { r.code = code }
func (r *recorded) Write(b []byte) (int, error) { return r.body.Write(b) }

func TestTakenPortDoesNotDisturbTheSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := start(t, Config{HealthzAddress: l.Addr().String()})
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestListeningIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		began, tries := time.Now(), 0
		var at time.Duration
		listen := func(context.Context) (net.Listener, error) {
			if tries++; tries < 9 {
				return nil, errors.New("taken")
			}
			at = time.Since(began)
			return &silent{closed: make(chan struct{})}, nil
		}
		done := make(chan struct{})
		go func() { defer close(done); s.keepServing(ctx, "x", listen, http.NotFoundHandler(), maxHeaderBytes) }()
		time.Sleep(10 * time.Minute)
		cancel()
		<-done
		// 1+2+4+8+16+32 s, then a minute each.
		if want := 63*time.Second + 2*time.Minute; tries != 9 || at != want {
			t.Errorf("listened at %v after %d attempts, want %v", at, tries, want)
		}
	})
}

func TestRetryEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s.keepServing(ctx, "x", func(context.Context) (net.Listener, error) { return nil, errors.New("taken") }, http.NotFoundHandler(), maxHeaderBytes)
	})
}

// silent is a listener without connections.
type silent struct {
	closed chan struct{}
	once   sync.Once
}

func (s *silent) Accept() (net.Conn, error) { <-s.closed; return nil, net.ErrClosed }
func (s *silent) Close() error              { s.once.Do(func() { close(s.closed) }); return nil }
func (s *silent) Addr() net.Addr            { return &net.UnixAddr{} }

func TestClientErrors(t *testing.T) {
	t.Run("not running", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "none.sock")
		_, err := NewClient(path).Pods(t.Context(), "")
		if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), path) {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("silent agent", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "hung.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		why := errors.New("waited long enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
		defer cancel()
		if _, err := NewClient(path).Pods(ctx, ""); !errors.Is(err, why) {
			t.Errorf("error: %v", err)
		}
	})
	for name, h := range map[string]http.HandlerFunc{
		"exit before the response": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"exit within the response": func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`{"release":`))
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := answering(t, h).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
				t.Errorf("error: %v", err)
			}
		})
	}
	t.Run("deadline of the dialer only", func(t *testing.T) {
		if err := NewClient("x").failed(t.Context(), os.ErrDeadlineExceeded); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("no fixed address", func(t *testing.T) {
		if strings.Contains(ErrNoResponse.Error(), "10248") {
			t.Errorf("error: %v", ErrNoResponse)
		}
	})
	t.Run("refused", func(t *testing.T) {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusForbidden, Error{"no"}) })
		if _, err := c.Pods(t.Context(), ""); !errors.Is(err, ErrNotRoot) {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("other error", func(t *testing.T) {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusTeapot, Error{"no tea"}) })
		if _, err := c.Pods(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no tea") {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("garbage", func(t *testing.T) {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) })
		if _, err := c.Pods(t.Context(), ""); err == nil {
			t.Error("garbage was taken for an answer")
		}
	})
	t.Run("entries without a pod", func(t *testing.T) {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`[{},{"pod":null}]`)) })
		if pods, err := c.Pods(t.Context(), ""); err != nil || len(pods) != 0 {
			t.Errorf("pods %v, %v", pods, err)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	g := newLimitListener(l, 1)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := g.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Fatal("a second connection came in")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close()
	second := <-accepted
	g.Close()
	second.Close()
	if _, more := <-accepted; more {
		t.Error("a connection came in after Close")
	}
}

// answering is a client of a server with that one handler.
func answering(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return NewClient(path)
}

func newServer(t *testing.T, c Config) *Server {
	t.Helper()
	if c.SocketPath == "" {
		c.SocketPath = filepath.Join(t.TempDir(), "tinylet.sock")
	}
	if c.Pods == nil {
		c.Pods = func(context.Context) []Pod { return nil }
	}
	if c.Events == nil {
		c.Events = func() []event.Event { return nil }
	}
	if c.Problem == nil {
		c.Problem = func() string { return "" }
	}
	if c.Todo == nil {
		c.Todo = func() []string { return nil }
	}
	c.RuntimeCalls, c.Conditions = func() uint64 { return 0 }, func() []Condition { return nil }
	c.Log = slog.New(slog.DiscardHandler)
	return New(c)
}

// run starts a server and waits until it responds.
func run(ctx context.Context, t *testing.T, c Config) (wait func() error) {
	t.Helper()
	s := newServer(t, c)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	client := NewClient(s.config.SocketPath)
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, err := client.Status(ctx)
		if err == nil {
			return func() error { return <-done }
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

func start(t *testing.T, c Config) *Client {
	t.Helper()
	if c.SocketPath == "" {
		c.SocketPath = filepath.Join(t.TempDir(), "tinylet.sock")
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	wait := run(ctx, t, c)
	t.Cleanup(func() {
		cancel()
		if err := wait(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return NewClient(c.SocketPath)
}

func newPod(namespace, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
