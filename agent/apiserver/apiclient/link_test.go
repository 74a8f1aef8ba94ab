package apiclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// link is a faulty connection to a server.
type link struct {
	net.Conn
	bytes int           // that come at a time, 0 is all
	pause time.Duration // before each
	dead  *atomic.Bool  // swallows all that comes
}

func (l *link) Read(p []byte) (int, error) {
	for {
		time.Sleep(l.pause)
		if l.bytes > 0 && len(p) > l.bytes {
			p = p[:l.bytes]
		}
		n, err := l.Conn.Read(p)
		if err != nil || l.dead == nil || !l.dead.Load() {
			return n, err
		}
	}
}

// over makes a client connect over links.
func over(c *Client, make func(net.Conn) *link) {
	dial := c.transport.base.DialContext
	c.transport.base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		counted := conn.(*countedConn)
		counted.Conn = make(counted.Conn)
		return conn, nil
	}
}

// TestThinLink reads a response of one frame that takes far longer than the limit
// for a silent connection.
func TestThinLink(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, _ *http.Request) {
		p := podNamed("a")
		p.Spec.Hostname = strings.Repeat("x", 12000)
		answer(t, w, http.StatusOK, p)
	})
	c := clientOf(t, s, nil)
	c.transport.silent = 300 * time.Millisecond
	c.transport.base.HTTP2.SendPingTimeout = 50 * time.Millisecond
	over(c, func(conn net.Conn) *link { return &link{Conn: conn, bytes: 150, pause: 10 * time.Millisecond} })
	began := time.Now()
	if err := c.Get(t.Context(), Pods, "default", "a", &v1.Pod{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*c.transport.silent {
		t.Errorf("it took %v: nothing is tested", took)
	}
}

// TestDeadLink drops all responses on a link, including those to pings.
func TestDeadLink(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			answer(t, w, http.StatusOK, podNamed("a"))
			return
		}
		w.Header().Set("Content-Type", "application/json;stream=watch")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c := clientOf(t, s, nil)
	c.transport.silent = 500 * time.Millisecond
	c.transport.base.HTTP2.SendPingTimeout = 200 * time.Millisecond
	var dead atomic.Bool
	connections := 0
	over(c, func(conn net.Conn) *link {
		if connections++; connections == 1 {
			return &link{Conn: conn, dead: &dead}
		}
		return &link{Conn: conn}
	})
	w, err := c.Watch(t.Context(), Pods, "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	// It lives by its pings.
	time.Sleep(3 * c.transport.silent)
	select {
	case e := <-w.ResultChan():
		t.Fatalf("a watch over a link that lives ended: %v", e)
	default:
	}
	dead.Store(true)
	began := time.Now()
	if err := c.Get(t.Context(), Pods, "default", "a", nil); !errors.Is(err, ErrSilent) {
		t.Errorf("error %v, want that the server is silent", err)
	}
	for range w.ResultChan() {
		// its last word is an error, or none
	}
	if took := time.Since(began); took > 10*c.transport.silent {
		t.Errorf("noticed after %v", took)
	}
	if err := c.Get(t.Context(), Pods, "default", "a", nil); err != nil || connections != 2 {
		t.Errorf("the next request: %v, by connection %d", err, connections)
	}
}

// TestOneConnection starts many requests at once.
func TestOneConnection(t *testing.T) {
	var made atomic.Int32
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { answer(t, w, http.StatusOK, podNamed("a")) })
	c := clientOf(t, s, nil)
	over(c, func(conn net.Conn) *link {
		made.Add(1)
		return &link{Conn: conn, pause: 5 * time.Millisecond}
	})
	for n := range 3 {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := c.Get(t.Context(), Pods, "default", "a", nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := int(made.Load()); got != n+1 {
			t.Errorf("%d connections for %d times 20 requests", got, n+1)
		}
		switch n {
		case 0:
			c.Reconnect()
		case 1:
			s.CloseClientConnections()
		}
		time.Sleep(100 * time.Millisecond) // until the client has noticed
	}
}
