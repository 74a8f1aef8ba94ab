package local

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// takeOver serves a session that echoes its input, and its last line after the
// client has closed its side.
func takeOver(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n%s;", r.URL.Path)
	go func() {
		defer conn.Close()
		_, _ = io.Copy(conn, buffered)
		_, _ = io.WriteString(conn, "the end")
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
}

// answered is the head of an answer.
type answered struct {
	StatusCode int
	Status     string
	Header     http.Header
}

// session begins one; what it says first was read.
func session(t *testing.T, c *Client, path string) (net.Conn, *bufio.Reader, answered) {
	t.Helper()
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return conn, in, answered{resp.StatusCode, resp.Status, resp.Header}
}

func TestSession(t *testing.T) {
	c := start(t, Config{Streaming: http.HandlerFunc(takeOver)})
	for _, path := range []string{PathExec + "ns/pod/main", PathAttach + "ns/pod/uid/main"} {
		conn, in, resp := session(t, c, path)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s answers %s", path, resp.Status)
		}
		if said, err := in.ReadString(';'); err != nil || said != path+";" {
			t.Errorf("%q, %v", said, err)
		}
		fmt.Fprint(conn, "input, ")
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(in); err != nil || string(rest) != "input, the end" {
			t.Errorf("%q, %v", rest, err)
		}
	}
}

// TestOtherConnections cannot become sessions, and are closed.
func TestOtherConnections(t *testing.T) {
	server, client := net.Pipe()
	defer client.Close()
	u := &hijackWriter{ResponseWriter: &hijacked{conn: &limitedConn{Conn: server, release: func() {}}}}
	if _, _, err := u.Hijack(); err == nil || u.hijacked {
		t.Errorf("a connection that is no unix socket's: %v", err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("it is open: %v", err)
	}
}

// hijacked is a ResponseWriter whose Hijack returns a given connection.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

// TestSessionsHaveTheirOwnPlaces shows that the maximum of sessions takes no
// connections from other requests, one more is rejected, and each end of a
// session allows another one.
func TestSessionsHaveTheirOwnPlaces(t *testing.T) {
	c := start(t, Config{Streaming: http.HandlerFunc(takeOver)})
	var open []net.Conn
	for len(open) < maxSessions {
		conn, _, resp := session(t, c, PathExec+"a/b/c")
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("session %d: %s", len(open), resp.Status)
		}
		open = append(open, conn)
	}
	for range maxConnections + 1 { // refusals hold no place either
		if _, _, resp := session(t, c, PathExec+"a/b/c"); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("one more: %s", resp.Status)
		}
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("a question beside all sessions: %v", err)
	}
	open[0].Close()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		_, _, resp := session(t, c, PathExec+"a/b/c")
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no place after an end: %s", resp.Status)
		}
	}
}

// TestRefusedSessions shows that a request that does not hijack its connection
// does not remain counted as a session.
func TestRefusedSessions(t *testing.T) {
	c := start(t, Config{Streaming: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not running", http.StatusConflict)
	})})
	for range 2 * maxSessions {
		if _, _, resp := session(t, c, PathExec+"a/b/c"); resp.StatusCode != http.StatusConflict {
			t.Fatal(resp.Status)
		}
	}
}

func TestDialWithoutAgent(t *testing.T) {
	if _, err := NewClient(t.TempDir() + "/none").Dial(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without an agent: %v", err)
	}
}

// TestLongCommands shows that a long command fits into the URL.
func TestLongCommands(t *testing.T) {
	got := 0
	c := start(t, Config{Streaming: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = len(r.URL.RawQuery)
		w.WriteHeader(http.StatusConflict)
	})})
	const long = 200 << 10
	if _, _, resp := session(t, c, PathExec+"a/b/c?"+strings.Repeat("x", long)); resp.StatusCode != http.StatusConflict || got != long {
		t.Errorf("%s, %d bytes, want %d", resp.Status, got, long)
	}
	if _, _, resp := session(t, c, PathExec+"a/b/c?"+strings.Repeat("x", 2*maxCommandBytes)); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("beyond the limit: %s", resp.Status)
	}
}

// TestBrokenSessionsGiveTheirPlacesBack shows that a handler that panics
// releases its session.
func TestBrokenSessionsGiveTheirPlacesBack(t *testing.T) {
	c := start(t, Config{Streaming: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == PathExec+"a/b/breaks" {
			panic(http.ErrAbortHandler)
		}
		takeOver(w, r)
	})})
	for range maxSessions {
		conn, err := c.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %sa/b/breaks HTTP/1.1\r\nHost: node\r\n\r\n", PathExec)
		if text, err := io.ReadAll(conn); len(text) != 0 || err != nil { // its end
			t.Errorf("%q, %v", text, err)
		}
		conn.Close()
	}
	if _, _, resp := session(t, c, PathExec+"a/b/c"); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("after sessions that broke: %s", resp.Status)
	}
}
