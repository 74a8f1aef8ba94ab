package streaming

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// patience is the timeout of operations that normally return at once.
const patience = 30 * time.Second

// urls is a Runtime that always returns the same URL or error.
type urls struct {
	url    string
	err    error
	exec   atomic.Pointer[runtimeapi.ExecRequest]
	attach atomic.Pointer[runtimeapi.AttachRequest]
	ports  atomic.Pointer[runtimeapi.PortForwardRequest]
	// sync is ExecSync.
	sync func(ctx context.Context, cmd []string) (stdout, stderr []byte, code int32, err error)
}

func (u *urls) Exec(_ context.Context, r *runtimeapi.ExecRequest) (string, error) {
	u.exec.Store(r)
	return u.url, u.err
}

func (u *urls) Attach(_ context.Context, r *runtimeapi.AttachRequest) (string, error) {
	u.attach.Store(r)
	return u.url, u.err
}

func (u *urls) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	u.ports.Store(r)
	return u.url, u.err
}

func (u *urls) ExecSync(ctx context.Context, _ string, cmd []string, _ time.Duration) (stdout, stderr []byte, code int32, err error) {
	return u.sync(ctx, cmd)
}

// findAll finds every pod.
func findAll(context.Context, Name) (Found, error) {
	return Found{SandboxID: "sandbox", ContainerID: "container"}, nil
}

// node is a server with the handler behind TLS.
type node struct {
	*testing.T
	*Handler
	server *httptest.Server
	stop   func() // ends Run and waits for it
}

func serve(t *testing.T, c Config, change ...func(*Handler)) *node {
	t.Helper()
	if c.Find == nil {
		c.Find = findAll
	}
	c.Log = slog.New(slog.DiscardHandler)
	h := New(c)
	for _, f := range change {
		f(h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); h.Run(ctx) }()
	n := &node{T: t, Handler: h, server: httptest.NewTLSServer(h), stop: func() { cancel(); <-ran }}
	n.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(n.server.Close)
	t.Cleanup(n.stop)
	return n
}

// peer is a client's connection after the upgrade.
type peer struct {
	*tls.Conn
	in   *bufio.Reader
	resp *http.Response
}

func (p *peer) Read(b []byte) (int, error) { return p.in.Read(b) }

const spdy = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"

// ask sends a request with headers, followed at once by early.
func (n *node) ask(method, uri, headers, early string) *peer {
	n.Helper()
	conn, err := tls.Dial("tcp", n.server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		n.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: node\r\n%s\r\n%s", method, uri, headers, early); err != nil {
		n.Fatal(err)
	}
	in := bufio.NewReaderSize(conn, 32<<10)
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { resp.Body.Close() })
	return &peer{Conn: conn, in: in, resp: resp}
}

// session starts an exec session; a response other than an upgrade fails the test.
func (n *node) session() *peer {
	n.Helper()
	p := n.ask("POST", "/exec/ns/pod/main?command=cat&input=1&output=1", spdy, "")
	if p.resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(p.resp.Body)
		n.Fatalf("answer %d: %s", p.resp.StatusCode, body)
	}
	return p
}

func (n *node) sessions() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.Handler.open)
}

// until polls until holds returns true.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// upgrading returns a streaming server that calls use for each upgraded connection.
func upgrading(t testing.TB, use func(*http.Request, net.Conn)) *httptest.Server {
	t.Helper()
	var uses sync.WaitGroup
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uses.Add(1)
		defer uses.Done()
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if early := unread(buffered.Reader); len(early) > 0 {
			conn = &resumed{Conn: conn, early: early}
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %s\r\nx-stream-protocol-version: v4.channel.k8s.io\r\nset-cookie: a=b\r\n\r\n", r.Header.Get("Upgrade"))
		use(r, conn)
	}))
	t.Cleanup(func() { s.Close(); uses.Wait() })
	return s
}

// resumed is a connection with data that was already read into a buffer.
type resumed struct {
	net.Conn
	early []byte
}

func (r *resumed) Read(b []byte) (int, error) {
	if len(r.early) > 0 {
		n := copy(b, r.early)
		r.early = r.early[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

func echo(_ *http.Request, conn net.Conn) {
	_, _ = io.Copy(conn, conn)
}

func (p *peer) echoes(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(p, got); err != nil || string(got) != text {
		t.Fatalf("%q came back as %q, %v", text, got, err)
	}
}

// TestPassesOn checks which headers and bytes are forwarded in both directions.
func TestPassesOn(t *testing.T) {
	seen := make(chan *http.Request, 1)
	rt := &urls{url: upgrading(t, func(r *http.Request, conn net.Conn) { seen <- r; echo(r, conn) }).URL + "/exec/token?q=1"}
	n := serve(t, Config{Runtime: rt, Find: func(_ context.Context, name Name) (Found, error) {
		if want := (Name{Namespace: "ns", Pod: "pod", UID: "uid", Container: "main"}); name != want {
			t.Errorf("%+v is looked for, want %+v", name, want)
		}
		return Found{ContainerID: "c1"}, nil
	}})
	for _, tt := range []struct{ method, upgrade, headers string }{
		{"POST", "SPDY/3.1", "X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"},
		{"GET", "websocket", "Sec-WebSocket-Key: a2V5\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0\r\n"},
	} {
		t.Run(tt.upgrade, func(t *testing.T) {
			const secrets = "Authorization: Bearer secret\r\nCookie: id=secret\r\nX-Remote-User: secret\r\nReferer: http://secret\r\nUser-Agent: secret\r\n"
			p := n.ask(tt.method, "/exec/ns/pod/uid/main?command=echo&command=a%20b&input=1&output=1&error=1", "Connection: Upgrade\r\nUpgrade: "+tt.upgrade+"\r\n"+tt.headers+secrets, "sent early ")
			if p.resp.StatusCode != http.StatusSwitchingProtocols || p.resp.Header.Get("Upgrade") != tt.upgrade {
				t.Fatalf("the answer is %v", p.resp)
			}
			if p.resp.Header.Get("Set-Cookie") != "" {
				t.Error("the runtime's cookie reaches the client")
			}
			r := <-seen
			var dump bytes.Buffer
			if err := r.Header.Write(&dump); err != nil {
				t.Fatal(err)
			}
			if r.Method != tt.method || r.RequestURI != "/exec/token?q=1" || r.UserAgent() != "" {
				t.Errorf("the runtime is asked %s %s by %q", r.Method, r.RequestURI, r.UserAgent())
			}
			if s := dump.String(); strings.Contains(s, "secret") || strings.Contains(s, "c2VjcmV0") || !strings.Contains(s, "v4.channel.k8s.io") {
				t.Errorf("the runtime gets:\n%s", s)
			}
			got := make([]byte, len("sent early "))
			if _, err := io.ReadFull(p, got); err != nil || string(got) != "sent early " {
				t.Errorf("what was sent with the request came back as %q, %v", got, err)
			}
			p.echoes(t, "there and back")
		})
	}
	if e := rt.exec.Load(); e.GetContainerId() != "c1" || len(e.GetCmd()) != 2 || e.GetCmd()[1] != "a b" || !e.GetStdin() || !e.GetStdout() || !e.GetStderr() || e.GetTty() {
		t.Errorf("the runtime was asked for %v", e)
	}
}

func TestAsksTheRuntime(t *testing.T) {
	rt := &urls{url: upgrading(t, echo).URL + "/token"}
	n := serve(t, Config{Runtime: rt})
	n.ask("POST", "/attach/ns/pod/main?input=1&output=1&error=1&tty=1", spdy, "").echoes(t, "attached")
	if a := rt.attach.Load(); a.GetContainerId() != "container" || !a.GetStdin() || !a.GetStdout() || a.GetStderr() || !a.GetTty() {
		t.Errorf("attach asks for %v", a)
	}
	n.ask("POST", "/portForward/ns/pod", spdy, "").echoes(t, "forwarded")
	if p := rt.ports.Load(); p.GetPodSandboxId() != "sandbox" || len(p.GetPort()) != 0 {
		t.Errorf("port-forward asks for %v", p)
	}
	n.ask("GET", "/portForward/ns/pod?port=80&port=81", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "").echoes(t, "forwarded")
	if p := rt.ports.Load(); p.GetPodSandboxId() != "sandbox" || len(p.GetPort()) != 2 || p.GetPort()[1] != 81 {
		t.Errorf("port-forward asks for %v", p)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := upgrading(t, echo)
	s.Config.ErrorLog = nil
	served := make(chan error, 1)
	second := &http.Server{Handler: s.Config.Handler, ReadHeaderTimeout: patience}
	go func() { served <- second.Serve(l) }()
	t.Cleanup(func() { second.Close(); <-served })
	serve(t, Config{Runtime: &urls{url: "unix:" + path + ":/exec/token"}}).session().echoes(t, "over a socket")
}

// TestRefused checks the code and text of responses that start no session.
func TestRefused(t *testing.T) {
	failing := func(answer string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, answer)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/exec/token"
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	finds := func(err error) func(context.Context, Name) (Found, error) {
		return func(context.Context, Name) (Found, error) { return Found{}, err }
	}
	const exec = "/exec/ns/pod/main?command=ls&output=1"
	for name, tt := range map[string]struct {
		c             Config
		uri, headers  string
		code          int
		text          string // contained in the body
		header, value string
	}{
		"no upgrade":        {headers: "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n", code: 426, text: "SPDY/3.1", header: "Upgrade", value: "SPDY/3.1, websocket"},
		"a body":            {headers: spdy + "Content-Length: 3\r\n", code: 400, text: "body"},
		"no path":           {uri: "/exec/ns/pod", code: 404, text: "NAMESPACE/POD[/UID]/CONTAINER"},
		"no stream":         {uri: "/exec/ns/pod/main?command=ls", code: 400, text: "output"},
		"no pod":            {c: Config{Find: finds(fmt.Errorf("pod ns/pod: %w", ErrNotFound))}, code: 404, text: "pod ns/pod: not found"},
		"not running":       {c: Config{Find: finds(fmt.Errorf("container main has exited with 3: %w", ErrNotRunning))}, code: 409, text: "exited with 3"},
		"finder breaks":     {c: Config{Find: finds(errors.New("broken"))}, code: 500, text: "broken"},
		"runtime forgot it": {c: Config{Runtime: &urls{err: fmt.Errorf("x: %w", container.ErrNotFound)}}, code: 404},
		"runtime is gone":   {c: Config{Runtime: &urls{err: container.ErrUnavailable}}, code: 503},
		"runtime is silent": {c: Config{Runtime: &urls{err: container.ErrTimeout}}, code: 504},
		"runtime cannot":    {c: Config{Runtime: &urls{err: container.ErrUnsupported}}, code: 501},
		"runtime refuses":   {c: Config{Runtime: &urls{err: errors.New("container is in EXITED state")}}, code: 500, text: "EXITED"},
		"elsewhere":         {c: Config{Runtime: &urls{url: "http://192.0.2.1:80/exec/token"}}, code: 502, text: "stream_server_address"},
		"with TLS":          {c: Config{Runtime: &urls{url: "https://127.0.0.1:80/exec/token"}}, code: 502, text: "https"},
		"nobody listens":    {c: Config{Runtime: &urls{url: gone.URL + "/exec/token"}}, code: 502, text: "refused"},
		"own error":         {c: Config{Runtime: &urls{url: failing("HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nX-Accepted-Stream-Protocol-Versions: v4.channel.k8s.io\r\n\r\n{\"unable\": true}")}}, code: 403, text: `{"unable": true}`, header: "X-Accepted-Stream-Protocol-Versions", value: "v4.channel.k8s.io"},
		"own type":          {c: Config{Runtime: &urls{url: failing("HTTP/1.1 500 X\r\nContent-Type: application/json\r\n\r\n{}")}}, code: 500, text: `{}`, header: "Content-Type", value: "application/json"},
		"long error":        {c: Config{Runtime: &urls{url: failing("HTTP/1.1 500 X\r\n\r\n" + strings.Repeat("x", 1<<20))}}, code: 500, text: "xxx"},
		"redirect":          {c: Config{Runtime: &urls{url: failing("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n")}}, code: 502, text: "302", header: "Location"},
		"a page":            {c: Config{Runtime: &urls{url: failing("HTTP/1.1 200 OK\r\n\r\nhello")}}, code: 502, text: "200"},
		"another upgrade":   {c: Config{Runtime: &urls{url: failing("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")}}, code: 502, text: "websocket"},
		"no HTTP":           {c: Config{Runtime: &urls{url: failing("SSH-2.0-OpenSSH_9.9\r\n")}}, code: 502, text: "read upgrade response"},
		"half an answer":    {c: Config{Runtime: &urls{url: failing("HTTP/1.1 101 Swit")}}, code: 502, text: "read upgrade response"},
		"endless head":      {c: Config{Runtime: &urls{url: failing("HTTP/1.1 101 Switching Protocols\r\n" + strings.Repeat("X: y\r\n", 1<<17))}}, code: 502, text: "read upgrade response"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.c.Runtime == nil {
				tt.c.Runtime = &urls{url: "http://127.0.0.1:1/not/reached"}
			}
			if tt.uri == "" {
				tt.uri = exec
			}
			if tt.headers == "" {
				tt.headers = spdy
			}
			n := serve(t, tt.c)
			p := n.ask("POST", tt.uri, tt.headers, "")
			body, err := io.ReadAll(p.resp.Body)
			if err != nil || p.resp.StatusCode != tt.code || !strings.Contains(string(body), tt.text) || len(body) > maxBody {
				t.Errorf("answer %d with %d bytes, %.300q, %v; want %d with %q", p.resp.StatusCode, len(body), body, err, tt.code, tt.text)
			}
			if tt.header != "" && p.resp.Header.Get(tt.header) != tt.value {
				t.Errorf("%s is %q, want %q", tt.header, p.resp.Header.Get(tt.header), tt.value)
			}
			if open := n.sessions(); open != 0 {
				t.Errorf("%d places are taken", open)
			}
		})
	}
}

// TestSilentRuntime: the streaming server accepts connections and never responds.
func TestSilentRuntime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := serve(t, Config{Runtime: &urls{url: "http://" + l.Addr().String() + "/exec/token"}}, func(h *Handler) { h.answerTimeout = 50 * time.Millisecond })
	p := n.ask("POST", "/exec/ns/pod/main?command=ls&output=1", spdy, "")
	if body, _ := io.ReadAll(p.resp.Body); p.resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(body), "50ms") {
		t.Errorf("answer %d: %s", p.resp.StatusCode, body)
	}
}

// TestClientLeavesEarly: after the client has disconnected, the handler does not wait
// for the runtime's response.
func TestClientLeavesEarly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := serve(t, Config{Runtime: &urls{url: "http://" + l.Addr().String() + "/exec/token"}}, func(h *Handler) { h.answerTimeout = time.Hour })
	conn, err := tls.Dial("tcp", n.server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /exec/ns/pod/main?command=ls&output=1 HTTP/1.1\r\nHost: node\r\n"+spdy+"\r\n"); err != nil {
		t.Fatal(err)
	}
	until(t, "the request", func() bool { return n.sessions() == 1 })
	conn.Close()
	until(t, "its end", func() bool { return n.sessions() == 0 })
}

func TestLimit(t *testing.T) {
	n := serve(t, Config{Runtime: &urls{url: upgrading(t, echo).URL + "/token"}}, func(h *Handler) { h.maxSessions = 2 })
	first, second := n.session(), n.session()
	p := n.ask("POST", "/exec/ns/pod/main?command=ls&output=1", spdy, "")
	if wait, err := strconv.Atoi(p.resp.Header.Get("Retry-After")); p.resp.StatusCode != http.StatusTooManyRequests || err != nil || wait < 1 {
		t.Errorf("the third is answered with %d, Retry-After %q", p.resp.StatusCode, p.resp.Header.Get("Retry-After"))
	}
	first.Close()
	until(t, "a place", func() bool { return n.sessions() == 1 })
	n.session().echoes(t, "there is a place again")
	second.echoes(t, "the second is untouched")
}

func TestServerEnds(t *testing.T) {
	n := serve(t, Config{Runtime: &urls{url: upgrading(t, echo).URL + "/token"}})
	p := n.session()
	p.echoes(t, "it works")
	n.stop() // and waits
	if open := n.sessions(); open != 0 {
		t.Errorf("%d sessions are left", open)
	}
	if _, err := p.Read(make([]byte, 1)); err == nil {
		t.Error("the session goes on")
	}
	late := n.ask("POST", "/exec/ns/pod/main?command=ls&output=1", spdy, "")
	if late.resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a request after the end is answered with %d", late.resp.StatusCode)
	}
}

// TestServerEndsWhileWaiting: Run also ends a request that waits for the runtime.
func TestServerEndsWhileWaiting(t *testing.T) {
	entered := make(chan struct{})
	n := serve(t, Config{Runtime: &urls{}, Find: func(ctx context.Context, _ Name) (Found, error) {
		close(entered)
		<-ctx.Done()
		return Found{}, ctx.Err()
	}})
	answered := make(chan int, 1)
	go func() { answered <- n.ask("POST", "/exec/ns/pod/main?command=ls&output=1", spdy, "").resp.StatusCode }()
	<-entered
	n.stop()
	if code := <-answered; code != http.StatusServiceUnavailable {
		t.Errorf("it is answered with %d", code)
	}
}

// TestHalfClose: the end of stdin, over TLS and TCP, does not end stdout.
func TestHalfClose(t *testing.T) {
	n := serve(t, Config{Runtime: &urls{url: upgrading(t, func(_ *http.Request, conn net.Conn) {
		all, err := io.ReadAll(conn) // answers only once all is there
		_, _ = fmt.Fprintf(conn, "%d bytes, %v", len(all), err)
	}).URL + "/token"}})
	p := n.session()
	if _, err := io.WriteString(p, "stdin"); err != nil {
		t.Fatal(err)
	}
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(p); err != nil || string(got) != "5 bytes, <nil>" {
		t.Errorf("the answer is %q, %v", got, err)
	}
	until(t, "the session's end", func() bool { return n.sessions() == 0 })
}

// TestSidesVanish closes either side of real connections.
func TestSidesVanish(t *testing.T) {
	conns, ended := make(chan net.Conn, 1), make(chan struct{}, 1)
	n := serve(t, Config{Runtime: &urls{url: upgrading(t, func(r *http.Request, conn net.Conn) {
		conns <- conn
		echo(r, conn)
		ended <- struct{}{}
	}).URL + "/token"}})
	client := n.session()
	<-conns
	client.NetConn().Close() // without TLS' farewell
	<-ended
	until(t, "the end after the client's", func() bool { return n.sessions() == 0 })

	client = n.session()
	runtimeSide := (<-conns).(*net.TCPConn)
	if err := runtimeSide.SetLinger(0); err != nil { // a reset, as of a process that dies
		t.Fatal(err)
	}
	runtimeSide.Close()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v, want the end", err)
	}
	client.Close()
	until(t, "the end after the runtime's", func() bool { return n.sessions() == 0 })
}

// TestMuch forwards 100 MB in both directions at the same time.
func TestMuch(t *testing.T) {
	size := int64(100 << 20)
	if testing.Short() {
		size = 10 << 20
	}
	n := serve(t, Config{Runtime: &urls{url: upgrading(t, echo).URL + "/token"}})
	p := n.session()
	if err := p.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	sent, got := sha256.New(), sha256.New()
	wrote := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(p.Conn, sent), rand.NewChaCha8([32]byte{7}), size)
		wrote <- errors.Join(err, p.CloseWrite())
	}()
	count, err := io.Copy(got, p)
	if err := errors.Join(err, <-wrote); err != nil || count != size {
		t.Fatalf("%d of %d bytes, %v", count, size, err)
	}
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Error("what came back is not what was sent")
	}
}

func TestFiftyAtOnce(t *testing.T) {
	n := serve(t, Config{Runtime: &urls{url: upgrading(t, echo).URL + "/token"}})
	all := func() {
		var peers []*peer
		for range 50 {
			peers = append(peers, n.session())
		}
		if open := n.sessions(); open != 50 {
			t.Fatalf("%d sessions are open", open)
		}
		var clients sync.WaitGroup
		for i, p := range peers {
			clients.Go(func() {
				want := bytes.Repeat([]byte{byte(i)}, 100_000)
				go func() { _, _ = p.Write(want) }()
				got := make([]byte, len(want))
				if _, err := io.ReadFull(p, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("session %d got something else, %v", i, err)
				}
			})
		}
		clients.Wait()
		for _, p := range peers {
			p.Close()
		}
		until(t, "their end", func() bool { return n.sessions() == 0 })
	}
	all()
	before := runtime.NumGoroutine()
	for range 3 {
		all()
	}
	until(t, "the goroutines' end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestRun(t *testing.T) {
	rt := &urls{sync: func(_ context.Context, cmd []string) (stdout, stderr []byte, code int32, err error) {
		switch cmd[0] {
		case "both":
			return []byte("out\n"), []byte("err\n"), 0, nil
		case "silent":
			return nil, nil, 0, nil
		case "code":
			return []byte("out\n"), []byte("it failed\n"), 3, nil
		case "loud":
			return nil, bytes.Repeat([]byte("x"), 1<<20), 3, nil
		}
		return nil, nil, 0, errors.New("executable file not found")
	}}
	n := serve(t, Config{Runtime: rt})
	for _, tt := range []struct {
		cmd, body string
		code      int
	}{
		{"both", "out\nerr\n", 200},
		{"silent", "", 200},
		{"code -x", "command 'code -x' exited with 3: it failed\n", 500},
		{"absent", "executable file not found", 500},
	} {
		p := n.ask("POST", "/run/ns/pod/main?cmd="+strings.ReplaceAll(tt.cmd, " ", "+"), "", "")
		if body, err := io.ReadAll(p.resp.Body); err != nil || string(body) != tt.body || p.resp.StatusCode != tt.code {
			t.Errorf("%s: %d, %q, %v; want %d, %q", tt.cmd, p.resp.StatusCode, body, err, tt.code, tt.body)
		}
		if kind := p.resp.Header.Get("Content-Type"); kind != "text/plain; charset=utf-8" {
			t.Errorf("%s: the type is %q", tt.cmd, kind)
		}
	}
	p := n.ask("POST", "/run/ns/pod/main?cmd=loud", "", "")
	if body, err := io.ReadAll(p.resp.Body); err != nil || len(body) > maxBody {
		t.Errorf("a failure is told with %d bytes, %v", len(body), err)
	}
}

// TestRunsAtOnce: concurrent commands of /run are limited, because their output is in
// memory.
func TestRunsAtOnce(t *testing.T) {
	running := make(chan struct{}, maxRuns)
	n := serve(t, Config{Runtime: &urls{sync: func(ctx context.Context, _ []string) (stdout, stderr []byte, code int32, err error) {
		running <- struct{}{}
		<-ctx.Done()
		return nil, nil, 0, ctx.Err()
	}}})
	var clients sync.WaitGroup
	for range maxRuns {
		clients.Go(func() { n.ask("POST", "/run/ns/pod/main?cmd=x", "", "") })
		<-running
	}
	if p := n.ask("POST", "/run/ns/pod/main?cmd=x", "", ""); p.resp.StatusCode != http.StatusTooManyRequests || p.resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many is answered with %d", p.resp.StatusCode)
	}
	n.stop()
	clients.Wait()
}
