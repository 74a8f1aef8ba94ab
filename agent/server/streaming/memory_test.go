package streaming

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
)

// BenchmarkIdleSession measures the memory of a used and now idle session, with 50 at
// once: heap and stacks in addition to those of the same connections directly to the
// runtime. It includes the client side of TLS, some kilobytes. The metric is
// held-B/session.
func BenchmarkIdleSession(b *testing.B) {
	const sessions = 50
	rt := upgrading(b, func(_ *http.Request, conn net.Conn) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, make([]byte, 64))
	})
	h := New(Config{Runtime: &urls{url: rt.URL + "/token"}, Find: findAll, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); h.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	server := httptest.NewTLSServer(h)
	defer server.Close()

	held := func(dial func() (net.Conn, error)) int64 {
		before := inUse()
		var conns []net.Conn
		for range sessions {
			conn, err := dial()
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, conn)
			use(b, conn)
		}
		bytes := inUse() - before
		for _, conn := range conns {
			conn.Close()
		}
		until(b, "their end", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.open) == 0
		})
		return bytes
	}
	straight, through := int64(0), int64(0)
	for b.Loop() {
		straight += held(func() (net.Conn, error) { return net.Dial("tcp", rt.Listener.Addr().String()) })
		through += held(func() (net.Conn, error) {
			return tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		})
	}
	b.ReportMetric(float64(through-straight)/float64(b.N)/sessions, "held-B/session")
}

// use upgrades a connection and reads an echoed byte.
func use(b *testing.B, conn net.Conn) {
	if _, err := io.WriteString(conn, "POST /exec/ns/pod/main?command=x&output=1 HTTP/1.1\r\nHost: node\r\n"+spdy+"\r\n~"); err != nil {
		b.Fatal(err)
	}
	for last := make([]byte, 1); last[0] != '~'; { // the head, then the echo
		if _, err := io.ReadFull(conn, last); err != nil {
			b.Fatal(err)
		}
	}
}

func inUse() int64 {
	var m runtime.MemStats
	for range 3 { // pools are emptied by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkPass measures the cost of a megabyte through a session.
func BenchmarkPass(b *testing.B) {
	const size = 1 << 20
	c, client := tcpPair(b)
	r, far := tcpPair(b)
	s := newSession(c, r, nil, nil, 0)
	done := make(chan struct{})
	go func() { defer close(done); s.run() }()
	chunk, got := make([]byte, 16<<10), make([]byte, 16<<10)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for range size / len(chunk) {
			if _, err := client.Write(chunk); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(far, got); err != nil {
				b.Fatal(err)
			}
		}
	}
	s.end()
	<-done
}

func tcpPair(b testing.TB) (ours, theirs net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	theirs, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	if ours, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}
