package apiclient

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"
)

// wire counts the bytes of all connections on the server's side.
type wire struct {
	net.Listener
	sent, received atomic.Uint64
}

type wired struct {
	net.Conn
	w *wire
}

func (w *wire) Accept() (net.Conn, error) {
	conn, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wired{conn, w}, nil
}

func (c *wired) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.received.Add(uint64(n))
	return n, err
}

func (c *wired) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.w.sent.Add(uint64(n))
	return n, err
}

// wiredServer starts a server whose bytes on the wire are counted.
func wiredServer(t *testing.T, handle http.HandlerFunc) (*httptest.Server, *wire) {
	t.Helper()
	s := httptest.NewUnstartedServer(handle)
	w := &wire{Listener: s.Listener}
	s.Listener = w
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, w
}

// row returns the counts of one purpose.
func row(m *Meter, verb, resource string) Traffic {
	for _, r := range m.Traffic() {
		if r.Verb == verb && r.Resource == resource {
			return r
		}
	}
	return Traffic{}
}

func sum(rows []Traffic) (sent, received uint64) {
	for _, r := range rows {
		sent += r.Sent
		received += r.Received
	}
	return sent, received
}

// large answers every request with an object of 5 kB.
func large(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		p := podNamed("a")
		p.Spec.Hostname = strings.Repeat("x", 5000)
		answer(t, w, http.StatusOK, p)
	}
}

func TestTrafficIsWhatTheWireCarries(t *testing.T) {
	s, w := wiredServer(t, large(t))
	meter := new(Meter)
	for range 2 { // clients, the second one as after a new enrolment
		c := clientOf(t, s, func(c *Config) { c.Meter = meter })
		if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Patch(t.Context(), Leases, "x", "a", "", types.MergePatchType, []byte(`{"a":1}`), nil); err != nil {
			t.Fatal(err)
		}
		c.Reconnect()
	}
	if get := row(meter, "get", "pods"); get.Sent != 0 || get.Received < 10000 || get.Received > 10400 {
		t.Errorf("get %+v", get)
	}
	if patch := row(meter, "patch", "leases"); patch.Sent != 14 || patch.Received < 10000 {
		t.Errorf("patch %+v", patch)
	}
	if rest := row(meter, Connection, Connection); rest.Sent < 1000 || rest.Received < 1000 || rest.Received > 10000 {
		t.Errorf("the rest %+v", rest)
	}
	// The other end sees the same but for what was under way at the end of a
	// connection.
	deadline := time.Now().Add(10 * time.Second)
	for {
		sent, received := sum(meter.Traffic())
		if sent == w.received.Load() && received <= w.sent.Load() && w.sent.Load()-received < 500 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("counted %d and %d bytes, the server %d and %d", sent, received, w.received.Load(), w.sent.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A counter that goes back tells Prometheus that the process began anew.
func TestTrafficNeverGoesBack(t *testing.T) {
	gate := make(chan struct{})
	s, _ := wiredServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			<-gate // what was sent is on the wire, and no answer yet
		}
		large(t)(w, r)
	})
	meter := new(Meter)
	c := clientOf(t, s, func(c *Config) { c.Meter = meter })
	if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
		t.Fatal(err)
	}
	before := row(meter, Connection, Connection)

	// While a request is under way its body may be counted on one side only.
	var patching sync.WaitGroup
	patching.Go(func() {
		if err := c.Patch(t.Context(), Leases, "x", "a", "", types.MergePatchType, []byte(strings.Repeat(" ", 20000)), nil); err != nil {
			t.Error(err)
		}
	})
	for row(meter, "patch", "leases").Sent < 20000 {
		time.Sleep(time.Millisecond)
	}
	if got := row(meter, Connection, Connection); got != before {
		t.Errorf("the rest grew from %+v to %+v while a request is under way", before, got)
	}
	close(gate)
	patching.Wait()

	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		last := map[[2]string]Traffic{}
		for {
			for _, r := range meter.Traffic() {
				was := last[[2]string{r.Verb, r.Resource}]
				if r.Sent < was.Sent || r.Received < was.Received {
					t.Errorf("%+v after %+v", r, was)
				}
				last[[2]string{r.Verb, r.Resource}] = r
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	var askers sync.WaitGroup
	for range 4 {
		askers.Go(func() {
			for range 50 {
				if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	askers.Wait()
	close(stop)
	<-watched
	sent, received := sum(meter.Traffic())
	if wireSent, wireReceived := meter.wire.sent.Load(), meter.wire.received.Load(); sent > wireSent || received > wireReceived || wireReceived-received > 200 {
		t.Errorf("the rows have %d and %d bytes, the wire %d and %d", sent, received, wireSent, wireReceived)
	}
}

// A watch lasts for minutes: its events count when they come, and the rest
// goes on meanwhile.
func TestTrafficOfAWatch(t *testing.T) {
	s, _ := wiredServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json;stream=watch")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	meter := new(Meter)
	c := clientOf(t, s, func(c *Config) { c.Meter = meter })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := c.Watch(ctx, Pods, "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-w.ResultChan()
	if got := row(meter, "watch", "pods"); got.Received < 80 || got.Received > 100 {
		t.Errorf("an event of 81 bytes counts as %+v", got)
	}
	if got := row(meter, Connection, Connection); got.Sent < 500 || got.Received < 500 {
		t.Errorf("the rest %+v beside a watch", got)
	}
}

// A body may be sent again by the transport, on another connection.
func TestTrafficOfABodyThatIsSentAgain(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://localhost/", strings.NewReader("12345"))
	if err != nil {
		t.Fatal(err)
	}
	var n counter
	countSent(req, &n)
	again, err := req.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []io.Reader{req.Body, again} {
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.sent.Load(); got != 10 {
		t.Errorf("%d bytes, want 10", got)
	}
}

func TestDeadLinkIsNoticed(t *testing.T) {
	s := server(t, large(t))
	c := clientOf(t, s, func(c *Config) { c.PingAfter = time.Minute })
	if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
		t.Fatal(err)
	}
	if got := c.transport.base.HTTP2.SendPingTimeout; got != time.Minute {
		t.Errorf("a silent server is pinged after %v", got)
	}
	if got := c.transport.silent; got != time.Minute+answerLimit {
		t.Errorf("a link is dead after a silence of %v", got)
	}
	if got := clientOf(t, s, nil).transport; got.base.HTTP2.SendPingTimeout != 15*time.Second || got.silent != 25*time.Second {
		t.Errorf("by default a silent server is pinged after %v, and its link is dead after %v", got.base.HTTP2.SendPingTimeout, got.silent)
	}
	c.transport.mu.Lock()
	defer c.transport.mu.Unlock()
	for conn := range c.transport.conns {
		raw, err := conn.Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			if ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || ms != 25000 {
				t.Errorf("the kernel waits %d ms for an acknowledgement: %v", ms, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
	if len(c.transport.conns) != 1 {
		t.Errorf("%d connections", len(c.transport.conns))
	}
}
