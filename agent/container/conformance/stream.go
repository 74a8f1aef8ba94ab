package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// The suite uses streams over WebSocket (v4.channel.k8s.io): runtimes serve it
// in addition to SPDY, and a client of it is a few lines. Each message begins
// with the number of its channel.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelStatus
)

// session is a client of a runtime's streaming server.
type session struct {
	w        *testEnv
	conn     *websocket.Conn
	received map[byte]string // received so far, by channel
}

// open connects to the URL that a runtime has returned.
func (w *testEnv) open(raw string, err error) *session {
	w.Helper()
	w.ok("prepare the stream", err)
	network, address, uri, known := "unix", "", "", false
	if rest, ok := strings.CutPrefix(raw, "unix:"); ok {
		address, uri, known = strings.Cut(rest, ":")
	} else {
		u, err := url.Parse(raw)
		w.ok("the runtime's URL", err)
		network, address, uri = "tcp", u.Host, u.RequestURI()
		known = u.Scheme == "http" && net.ParseIP(u.Hostname()).IsLoopback()
	}
	if !known {
		w.Fatalf("the runtime's URL is %s, want http on a loopback address, or unix:/SOCKET:/PATH", raw)
	}
	config, err := websocket.NewConfig("ws://localhost"+uri, "http://localhost")
	w.ok("the runtime's URL", err)
	config.Protocol = []string{"v4.channel.k8s.io"}
	stream, err := net.DialTimeout(network, address, w.Timeout)
	w.ok("connect to "+raw, err)
	w.Cleanup(func() { stream.Close() })
	conn, err := websocket.NewClient(config, stream)
	w.ok("connect to "+raw, err)
	conn.PayloadType = websocket.BinaryFrame
	w.ok("limit the session", conn.SetDeadline(time.Now().Add(3*w.Timeout)))
	return &session{w: w, conn: conn, received: make(map[byte]string)}
}

func (s *session) send(channel byte, text string) {
	s.w.Helper()
	if _, err := s.conn.Write(append([]byte{channel}, text...)); err != nil {
		s.w.Fatalf("send %q: %v", text, err)
	}
}

// receiveUntil receives until the condition holds. It returns false if the session
// ends first.
func (s *session) receiveUntil(holds func() bool) bool {
	s.w.Helper()
	for !holds() {
		var message []byte
		err := websocket.Message.Receive(s.conn, &message)
		switch {
		case errors.Is(err, io.EOF):
			return false
		case err != nil:
			s.w.Fatalf("receive after %q: %v", s.received, err)
		case len(message) > 0:
			s.received[message[0]] += string(message[1:])
		}
	}
	return true
}

// end receives until the session ends, and returns the result of the command.
func (s *session) end() (code int32, err error) {
	s.w.Helper()
	s.receiveUntil(func() bool { return false })
	var status metav1.Status
	if err := json.Unmarshal([]byte(s.received[channelStatus]), &status); err != nil {
		s.w.Fatalf("the status is %q: %v", s.received[channelStatus], err)
	}
	if status.Status == metav1.StatusSuccess {
		return 0, nil
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type == "ExitCode" {
				n, err := strconv.ParseInt(cause.Message, 10, 32)
				return int32(n), err
			}
		}
	}
	return 0, fmt.Errorf("%s: %s", status.Reason, status.Message)
}

func testStreamExec(w *testEnv) {
	_, id := w.runReady(scriptReady)
	script := shell("echo out; echo err >&2; exit 3")
	for _, tt := range []struct {
		name               string
		wantsOut, wantsErr bool
		cmd                []string
		stdout, stderr     string
		code               int32
	}{
		{name: "apart", wantsOut: true, wantsErr: true, cmd: script, stdout: "out\n", stderr: "err\n", code: 3},
		{name: "stdout only", wantsOut: true, cmd: script, stdout: "out\n", code: 3},
		{name: "stderr only", wantsErr: true, cmd: script, stderr: "err\n", code: 3},
		{name: "no output", wantsOut: true, wantsErr: true, cmd: []string{"/bin/true"}},
	} {
		s := w.open(w.Runtime.Exec(w.Context(), &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: tt.cmd, Stdout: tt.wantsOut, Stderr: tt.wantsErr,
		}))
		code, err := s.end()
		if err != nil || code != tt.code || s.received[channelStdout] != tt.stdout || s.received[channelStderr] != tt.stderr {
			w.Errorf("%s: code %d, stdout %q, stderr %q, %v; want %d, %q, %q", tt.name,
				code, s.received[channelStdout], s.received[channelStderr], err, tt.code, tt.stdout, tt.stderr)
		}
	}
	s := w.open(w.Runtime.Exec(w.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"/no/such/program"}, Stdout: true}))
	if code, err := s.end(); err == nil && code == 0 {
		w.Error("a program that does not exist has succeeded")
	}
}

func testStreamInput(w *testEnv) {
	_, id := w.runReady(scriptReady)
	s := w.open(w.Runtime.Exec(w.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: []string{"/bin/cat"}, Stdin: true, Stdout: true,
	}))
	for _, word := range []string{"first\n", "second\n"} {
		before := s.received[channelStdout]
		s.send(channelStdin, word)
		if !s.receiveUntil(func() bool { return s.received[channelStdout] == before+word }) {
			w.Fatalf("the command ended after %q", s.received)
		}
	}
}

func testAttach(w *testEnv) {
	_, id := w.runReady(scriptReady)
	s := w.open(w.Runtime.Attach(w.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdout: true, Stderr: true}))
	// Nothing shows when the runtime has attached to the process, so the
	// process writes until its output arrives.
	received, written := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if _, _, code, err := w.Runtime.ExecSync(w.Context(), id, shell("echo attached > /proc/1/fd/1"), w.Timeout); err != nil || code != 0 {
				written <- fmt.Errorf("write to the output: code %d, %w", code, err)
				return
			}
			select {
			case <-received:
				written <- nil
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	if !s.receiveUntil(func() bool { return len(s.received[channelStdout]) >= len("attached\n") }) {
		w.Errorf("the session ended after %q", s.received)
	}
	close(received)
	w.ok("the process speaks", <-written)
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), id, 0))
	s.receiveUntil(func() bool { return false }) // fails unless the session ends
}

func testPortForward(w *testEnv) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	w.ok("listen", err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	w.Cleanup(func() { l.Close(); <-served })

	// The suite's sandboxes are on the host network, as this listener is.
	p := w.runPod()
	port := l.Addr().(*net.TCPAddr).Port
	s := w.open(w.Runtime.PortForward(w.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{int32(port)}}))
	const data, failure = 0, 1
	number := string([]byte{byte(port), byte(port >> 8)}) // each channel begins with it
	if !s.receiveUntil(func() bool { return s.received[data] == number && s.received[failure] == number }) {
		w.Fatalf("the session ended after %q", s.received)
	}
	s.send(data, "there and back")
	if !s.receiveUntil(func() bool { return s.received[data] == number+"there and back" || s.received[failure] != number }) || s.received[failure] != number {
		w.Errorf("the port answered %q", s.received)
	}
	s.conn.Close()
}

func testStreamRefused(w *testEnv) {
	p := w.runPod()
	created := p.create(p.containerConfig("created", scriptForever))
	stopped := p.start("main", scriptForever)
	w.ok("StopContainer", w.Runtime.StopContainer(w.Context(), stopped, 0))
	w.waitExited(stopped)
	running := p.start("running", scriptForever)

	exec := func(id string) error {
		_, err := w.Runtime.Exec(w.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"/bin/true"}, Stdout: true})
		return err
	}
	attach := func(id string) error {
		_, err := w.Runtime.Attach(w.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
		return err
	}
	forward := func(id string) error {
		_, err := w.Runtime.PortForward(w.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: []int32{80}})
		return err
	}
	for name, call := range map[string]func(string) error{"Exec": exec, "Attach": attach} {
		for _, id := range []string{created, stopped} {
			if err := call(id); err == nil || errors.Is(err, container.ErrNotFound) {
				w.Errorf("%s to a container that does not run: %v", name, err)
			}
		}
		w.ok(name+" to a running container", call(running))
	}
	for name, call := range map[string]func(string) error{"Exec": exec, "Attach": attach, "PortForward": forward} {
		if err := call(unknownID); !errors.Is(err, container.ErrNotFound) {
			w.Errorf("%s of what is unknown: %v, want ErrNotFound", name, err)
		}
	}
	_, err := w.Runtime.Exec(w.Context(), &runtimeapi.ExecRequest{ContainerId: running, Cmd: []string{"/bin/true"}})
	if err == nil {
		w.Error("Exec without any stream was prepared")
	}
	_, err = w.Runtime.Exec(w.Context(), &runtimeapi.ExecRequest{ContainerId: running, Cmd: []string{"/bin/true"}, Tty: true, Stdout: true, Stderr: true})
	if err == nil {
		w.Error("Exec with a terminal and stderr was prepared")
	}
	w.ok("PortForward to a ready sandbox", forward(p.id))
	p.stop()
	if err := forward(p.id); err == nil || errors.Is(err, container.ErrNotFound) {
		w.Errorf("PortForward to a stopped sandbox: %v", err)
	}
}
