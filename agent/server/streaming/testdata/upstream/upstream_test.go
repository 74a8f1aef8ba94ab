// Package upstream tests agent/server/streaming between the upstream programs:
// Kubernetes' client for exec, attach and port-forward, and the streaming server of
// containerd and CRI-O. It also tests agent/server/remotecommand in place of that
// client. It is a separate module, because both need a SPDY library, which tinylet
// does not use:
//
//	cd agent/server/streaming/testdata/upstream && go test .
package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	remote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	stream "github.com/tinylet/tinylet/agent/server/streaming"
)

const patience = 2 * time.Minute

// commands implements the commands of the runtime.
type commands struct{}

func (commands) Exec(ctx context.Context, _ string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remote.TerminalSize) error {
	switch cmd[0] {
	case "apart":
		fmt.Fprint(out, "out")
		fmt.Fprint(errs, "err")
		return exec.CodeExitError{Err: errors.New("exit 3"), Code: 3}
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "sum": // says it only after the end of its input
		sum := sha256.New()
		if _, err := io.Copy(sum, in); err != nil {
			return err
		}
		fmt.Fprintf(out, "%x", sum.Sum(nil))
	case "much":
		_, err := io.CopyN(out, rand.NewChaCha8([32]byte{1}), 100<<20)
		return err
	case "broken":
		return errors.New("no such program")
	case "size":
		for range 2 {
			select {
			case size := <-resize:
				fmt.Fprintf(out, "%dx%d tty=%v\n", size.Width, size.Height, tty)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (c commands) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remote.TerminalSize) error {
	return c.Exec(ctx, id, []string{"cat"}, in, out, errs, tty, resize)
}

// refusedPort is a port without a listener.
const refusedPort = 1

func (commands) PortForward(_ context.Context, sandbox string, port int32, conn io.ReadWriteCloser) error {
	if port == refusedPort {
		return errors.New("connect: connection refused")
	}
	fmt.Fprintf(conn, "port %d of %s: ", port, sandbox)
	_, err := io.Copy(conn, conn)
	return err
}

// driver calls the streaming server like containerd.
type driver struct{ server streaming.Server }

func (d driver) Exec(_ context.Context, r *runtimeapi.ExecRequest) (string, error) {
	a, err := d.server.GetExec(r)
	return a.GetUrl(), err
}

func (d driver) Attach(_ context.Context, r *runtimeapi.AttachRequest) (string, error) {
	a, err := d.server.GetAttach(r)
	return a.GetUrl(), err
}

func (d driver) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	a, err := d.server.GetPortForward(r)
	return a.GetUrl(), err
}

func (driver) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, code int32, err error) {
	return nil, nil, 0, errors.New("not asked here")
}

// node returns a client configuration for a handler in front of a runtime.
func node(t *testing.T) *rest.Config {
	t.Helper()
	front := httptest.NewTLSServer(handlerOf(t))
	t.Cleanup(front.Close)
	return &rest.Config{Host: front.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// handlerOf returns an agent/server/streaming handler in front of a runtime.
func handlerOf(t *testing.T) http.Handler {
	t.Helper()
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http"}
	server, err := streaming.NewServer(config, commands{})
	if err != nil {
		t.Fatal(err)
	}
	rt := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), "secret") {
				t.Errorf("the runtime gets a credential: %v", r.Header)
			}
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(rt.Close)
	config.BaseURL.Host = rt.Listener.Addr().String()
	handler := stream.New(stream.Config{
		Runtime: driver{server},
		Find: func(context.Context, stream.Name) (stream.Found, error) {
			return stream.Found{SandboxID: "sandbox", ContainerID: "container"}, nil
		},
		IdleTimeout: time.Hour,
		Log:         slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); handler.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })
	return handler
}

// run streams a command, or attaches without one.
func run(t *testing.T, config *rest.Config, command string, options remotecommand.StreamOptions) error {
	t.Helper()
	u, err := url.Parse(config.Host + "/exec/ns/pod/main?command=" + command)
	if err != nil {
		t.Fatal(err)
	}
	if command == "" {
		u.Path = "/attach/ns/pod/main"
	}
	query := u.Query()
	for name, wanted := range map[string]bool{"input": options.Stdin != nil, "output": options.Stdout != nil, "error": options.Stderr != nil, "tty": options.Tty} {
		if wanted {
			query.Set(name, "1")
		}
	}
	u.RawQuery = query.Encode()
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return executor.StreamWithContext(ctx, options)
}

func TestExitCodeAndStreamsApart(t *testing.T) {
	var out, errs bytes.Buffer
	err := run(t, node(t), "apart", remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	var code clientexec.ExitError
	if !errors.As(err, &code) || code.ExitStatus() != 3 || out.String() != "out" || errs.String() != "err" {
		t.Errorf("%v, stdout %q, stderr %q; want code 3, out, err", err, out.String(), errs.String())
	}
}

func TestEcho(t *testing.T) {
	for name, command := range map[string]string{"exec": "cat", "attach": ""} {
		var out bytes.Buffer
		err := run(t, node(t), command, remotecommand.StreamOptions{Stdin: strings.NewReader("there and back"), Stdout: &out})
		if err != nil || out.String() != "there and back" {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}

// TestEndOfInput: the command responds only after the end of 100 MB of input.
func TestEndOfInput(t *testing.T) {
	var out bytes.Buffer
	sum := sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{2}), 100<<20), sum)
	err := run(t, node(t), "sum", remotecommand.StreamOptions{Stdin: in, Stdout: &out})
	if err != nil || out.String() != fmt.Sprintf("%x", sum.Sum(nil)) {
		t.Errorf("%q, %v; want %x", out.String(), err, sum.Sum(nil))
	}
}

func TestMuchOutput(t *testing.T) {
	got, want := sha256.New(), sha256.New()
	if _, err := io.CopyN(want, rand.NewChaCha8([32]byte{1}), 100<<20); err != nil {
		t.Fatal(err)
	}
	err := run(t, node(t), "much", remotecommand.StreamOptions{Stdout: got})
	if err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%x, %v; want %x", got.Sum(nil), err, want.Sum(nil))
	}
}

// sizes is a queue of terminal sizes.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestResize(t *testing.T) {
	queue := make(sizes, 2)
	queue <- remotecommand.TerminalSize{Width: 80, Height: 25}
	queue <- remotecommand.TerminalSize{Width: 132, Height: 50}
	close(queue)
	var out bytes.Buffer
	in, typing := io.Pipe() // a terminal's input is open
	defer typing.Close()
	err := run(t, node(t), "size", remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true, TerminalSizeQueue: queue})
	if want := "80x25 tty=true\n132x50 tty=true\n"; err != nil || out.String() != want {
		t.Errorf("%q, %v; want %q", out.String(), err, want)
	}
}

func TestPortForward(t *testing.T) {
	config := node(t)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(config.Host + "/portForward/ns/pod")
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080", "0:9090"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port.Local))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "there and back")
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if want := fmt.Sprintf("port %d of sandbox: there and back", port.Remote); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		conn.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// forwarding is a port-forward session, whose connections the test opens like kubectl.
type forwarding struct {
	t     *testing.T
	conn  httpstream.Connection
	count int
}

func (f *forwarding) create(kind string, port int) (httpstream.Stream, error) {
	headers := http.Header{}
	headers.Set(v1.StreamType, kind)
	headers.Set(v1.PortHeader, strconv.Itoa(port))
	headers.Set(v1.PortForwardRequestIDHeader, strconv.Itoa(f.count))
	return f.conn.CreateStream(headers)
}

// connect opens a connection to a port. If the port rejects it at once, the data stream
// may be gone already.
func (f *forwarding) connect(port int) (data, failure httpstream.Stream) {
	f.t.Helper()
	f.count++
	failure, err := f.create(v1.StreamTypeError, port)
	if err != nil {
		f.t.Fatalf("connection %d: %v", f.count, err)
	}
	if err := failure.Close(); err != nil { // nothing is written to it
		f.t.Fatal(err)
	}
	if data, err = f.create(v1.StreamTypeData, port); err != nil && port != refusedPort {
		f.t.Fatalf("connection %d: %v", f.count, err)
	}
	return data, failure
}

// ends reads both streams of a connection to their end.
func (f *forwarding) ends(data, failure httpstream.Stream, want string) {
	f.t.Helper()
	got, err := io.ReadAll(data)
	told, errOfFailure := io.ReadAll(failure)
	if err := errors.Join(err, errOfFailure); err != nil || string(got) != want || len(told) > 0 {
		f.t.Errorf("of %d connections one has %q and %q, %v; want %q", f.count, got, told, err, want)
	}
	f.conn.RemoveStreams(data, failure)
}

// TestPortForwardConnections: the connections of a session are independent. A rejected
// one ends neither another one nor the session, and there may be many, sequential and
// concurrent.
func TestPortForwardConnections(t *testing.T) {
	config := node(t)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(config.Host + "/portForward/ns/pod")
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := &forwarding{t: t, conn: conn}
	const hello = "port 8080 of sandbox: "
	// The client's library passes nothing on while something is not read.
	lasting, itsFailure := f.connect(8080)
	if _, err := io.ReadFull(lasting, make([]byte, len(hello))); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		_, failure := f.connect(refusedPort)
		if told, _ := io.ReadAll(failure); len(told) > 0 && !strings.Contains(string(told), "connection refused") {
			t.Errorf("the refused connection says %q", told)
		}
		data, failure := f.connect(8080)
		if _, err := io.WriteString(data, "there and back"); err != nil {
			t.Fatal(err)
		}
		if err := data.Close(); err != nil {
			t.Fatal(err)
		}
		f.ends(data, failure, hello+"there and back")
	}
	var all sync.WaitGroup
	var open []httpstream.Stream
	for range 25 {
		data, failure := f.connect(8080)
		open = append(open, data)
		all.Go(func() { f.ends(data, failure, hello+"at once") })
	}
	for _, data := range open {
		if _, err := io.WriteString(data, "at once"); err != nil {
			t.Fatal(err)
		}
		if err := data.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if _, err := io.WriteString(lasting, "still there"); err != nil {
		t.Fatal(err)
	}
	if err := lasting.Close(); err != nil {
		t.Fatal(err)
	}
	f.ends(lasting, itsFailure, "still there")
	select {
	case <-conn.CloseChan():
		t.Error("the session has ended")
	default:
	}
}

// TestWebSocket: the streaming server speaks v4; it rejects v5, which only the kubelet
// translates, and the client gets the error.
func TestWebSocket(t *testing.T) {
	config := node(t)
	for protocol, works := range map[string]bool{"v4.channel.k8s.io": true, "v5.channel.k8s.io": false} {
		executor, err := remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, config.Host+"/exec/ns/pod/main?command=apart&output=1&error=1", protocol)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
		var code clientexec.ExitError
		if got := errors.As(err, &code) && code.ExitStatus() == 3 && out.String() == "out" && errs.String() == "err"; got != works || err == nil {
			t.Errorf("%s: %v, stdout %q, stderr %q; it works: %v, want %v", protocol, err, out.String(), errs.String(), got, works)
		}
	}
}

func TestFiftyAtOnce(t *testing.T) {
	config := node(t)
	all := func() {
		var clients sync.WaitGroup
		for i := range 50 {
			clients.Go(func() {
				var out bytes.Buffer
				text := strings.Repeat(fmt.Sprintf("session %d ", i), 1000)
				if err := run(t, config, "cat", remotecommand.StreamOptions{Stdin: strings.NewReader(text), Stdout: &out}); err != nil || out.String() != text {
					t.Errorf("session %d got %d of %d bytes, %v", i, out.Len(), len(text), err)
				}
			})
		}
		clients.Wait()
	}
	all()
	settle := func() int { // both programs leave some goroutines for a while
		time.Sleep(time.Second)
		return runtime.NumGoroutine()
	}
	before := settle()
	all()
	for deadline := time.Now().Add(patience); settle() > before; {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left, before there were %d", runtime.NumGoroutine(), before)
		}
	}
}
