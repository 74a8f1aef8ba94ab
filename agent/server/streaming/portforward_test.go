package streaming

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
)

// forward opens a forwarded port and skips the port number, which is sent first on each
// channel.
func (n *node) forward(port int) *websocket.Conn {
	n.Helper()
	address := n.server.Listener.Addr().String()
	config, err := websocket.NewConfig(fmt.Sprintf("wss://%s/portForward/ns/pod?port=%d", address, port), "https://"+address)
	if err != nil {
		n.Fatal(err)
	}
	config.Protocol = []string{"v4.channel.k8s.io"}
	config.TlsConfig = &tls.Config{InsecureSkipVerify: true}
	conn, err := websocket.DialConfig(config)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { conn.Close() })
	conn.PayloadType = websocket.BinaryFrame
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		n.Fatal(err)
	}
	for range 2 {
		if message, err := received(conn); err != nil || len(message) != 3 {
			n.Fatalf("the port's number is %q, %v", message, err)
		}
	}
	return conn
}

func received(conn *websocket.Conn) (message string, err error) {
	var got []byte
	err = websocket.Message.Receive(conn, &got)
	return string(got), err
}

// TestPortForwardSessions: a session whose port rejects the connection reports the error
// and ends; earlier, concurrent and later sessions are not affected.
func TestPortForwardSessions(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := closed.Addr().(*net.TCPAddr).Port
	closed.Close()

	rt := fake.New(fake.Config{})
	stop, err := rt.ServeStreams()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); stop(); conns.Wait() })
	sandbox, err := rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	n := serve(t, Config{Runtime: rt, Find: func(context.Context, Name) (Found, error) { return Found{SandboxID: sandbox}, nil }})

	port := l.Addr().(*net.TCPAddr).Port
	var open []*websocket.Conn
	for i := range 12 {
		open = append(open, n.forward(port))
		lost := n.forward(refused)
		if said, err := received(lost); err != nil || !strings.HasPrefix(said, "\x01") || !strings.Contains(said, "refused") {
			t.Fatalf("the refused connection says %q, %v", said, err)
		}
		if said, err := received(lost); err == nil {
			t.Errorf("and then %q", said)
		}
		lost.Close()
		for j, conn := range open {
			text := fmt.Sprintf("\x00%d of %d", j, i)
			if _, err := conn.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if said, err := received(conn); err != nil || said != text {
				t.Fatalf("connection %d of %d: %q, %v", j, i, said, err)
			}
		}
	}
	until(t, "the end of the refused ones", func() bool { return n.sessions() == len(open) })
	for _, conn := range open {
		conn.Close()
	}
	until(t, "the end of the others", func() bool { return n.sessions() == 0 })
}
