package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// echo is a runtime whose commands copy their input to both outputs.
type echo struct{}

func (echo) Exec(_ context.Context, id string, cmd []string, s Streams) (int32, error) {
	if cmd[0] == "fail" {
		return 0, errors.New("no such file")
	}
	size := ""
	if s.Terminal {
		got := <-s.Resize
		size = fmt.Sprint(got.Width, "x", got.Height, " ")
	}
	if s.Stdin != nil {
		line := make([]byte, 100)
		n, err := s.Stdin.Read(line)
		if err != nil {
			return 0, err
		}
		_, _ = fmt.Fprintf(s.Stdout, "%s%s got %s", size, id, line[:n])
	}
	if s.Stderr != nil {
		_, _ = fmt.Fprintf(s.Stderr, "err of %v", cmd)
	}
	return 7, nil
}

func (echo) Attach(_ context.Context, id string, s Streams) error {
	_, err := fmt.Fprintf(s.Stdout, "attached to %s", id)
	return err
}

func (echo) PortForward(_ context.Context, id string, port int32, client io.ReadWriteCloser) error {
	line := make([]byte, 100)
	n, err := client.Read(line)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(client, "port %d of %s got %s", port, id, line[:n])
	return err
}

func serve(t *testing.T) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "sessions") // short, for the path of the socket
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(filepath.Join(dir, "s"), echo{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	for range 1000 {
		if _, err := os.Stat(s.socket); err == nil {
			return s
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return nil
}

// dial opens a URL as a WebSocket.
func dial(t *testing.T, url, protocol string) (*websocket.Conn, error) {
	t.Helper()
	socket, path, ok := strings.Cut(strings.TrimPrefix(url, "unix:"), ":")
	if !ok {
		t.Fatalf("the URL is %q", url)
	}
	config, err := websocket.NewConfig("ws://localhost"+path, "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = []string{protocol}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ws, err := websocket.NewClient(config, conn)
	if err != nil {
		return nil, err
	}
	ws.PayloadType = websocket.BinaryFrame
	return ws, ws.SetDeadline(time.Now().Add(time.Minute))
}

// receive returns what comes until the session ends, by channel.
func receive(t *testing.T, ws *websocket.Conn) map[byte]string {
	t.Helper()
	out := map[byte]string{}
	for {
		var message []byte
		err := websocket.Message.Receive(ws, &message)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(message) > 0 {
			out[message[0]] += string(message[1:])
		}
	}
}

const remoteCommand = "v4.channel.k8s.io"

func TestExec(t *testing.T) {
	s := serve(t)
	for _, row := range []struct {
		name       string
		request    *runtimeapi.ExecRequest
		send       string
		out, err   string
		code, text string
	}{
		{name: "all streams", request: &runtimeapi.ExecRequest{Cmd: []string{"x"}, Stdin: true, Stdout: true, Stderr: true}, send: "\x00in", out: "c got in", err: "err of [x]", code: "7"},
		{name: "a terminal", request: &runtimeapi.ExecRequest{Cmd: []string{"x"}, Stdin: true, Stdout: true, Tty: true}, send: "\x00in", out: "80x24 c got in", code: "7"},
		{name: "it fails", request: &runtimeapi.ExecRequest{Cmd: []string{"fail"}, Stdout: true}, text: "no such file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.request.ContainerId = "c"
			url, err := s.Exec(row.request)
			if err != nil {
				t.Fatal(err)
			}
			ws, err := dial(t, url, remoteCommand)
			if err != nil {
				t.Fatal(err)
			}
			if row.request.Tty {
				if _, err := ws.Write([]byte("\x04{\"Width\":80,\"Height\":24}")); err != nil {
					t.Fatal(err)
				}
			}
			if row.send != "" {
				if _, err := ws.Write([]byte(row.send)); err != nil {
					t.Fatal(err)
				}
			}
			got := receive(t, ws)
			var status metav1.Status
			if err := json.Unmarshal([]byte(got[3]), &status); err != nil {
				t.Fatalf("the status is %q: %v", got[3], err)
			}
			code := ""
			if d := status.Details; d != nil && len(d.Causes) > 0 {
				code = d.Causes[0].Message
			}
			if got[1] != row.out || got[2] != row.err || row.code != "" && code != row.code || !strings.Contains(status.Message, row.text) {
				t.Errorf("got %q, %q, %+v", got[1], got[2], status)
			}
			if _, err := dial(t, url, remoteCommand); err == nil {
				t.Error("the URL is valid twice")
			}
		})
	}
	if _, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c", Cmd: []string{"x"}}); err == nil {
		t.Error("a command without streams gets a URL")
	}
}

func TestAttach(t *testing.T) {
	s := serve(t)
	url, err := s.Attach(&runtimeapi.AttachRequest{ContainerId: "c", Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := dial(t, url, remoteCommand)
	if err != nil {
		t.Fatal(err)
	}
	if got := receive(t, ws); got[1] != "attached to c" {
		t.Errorf("got %q", got)
	}
}

func TestPortForward(t *testing.T) {
	s := serve(t)
	url, err := s.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "p", Port: []int32{80}})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := dial(t, url, "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Write([]byte("\x00in")); err != nil {
		t.Fatal(err)
	}
	const port = "P\x00" // the first message of each channel has the port, little endian
	if got := receive(t, ws); got[0] != port+"port 80 of p got in" || got[1] != port {
		t.Errorf("got %q", got)
	}
}
