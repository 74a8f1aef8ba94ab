package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tinylet/tinylet/agent/server/authn"
)

// farewell is how long crypto/tls tries to send its closing alert: net/http closes a
// connection after a failed write.
const farewell = 5 * time.Second

var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// TestSlowStrangers: a connection without progress in the handshake or the header is
// closed after ten seconds.
func TestSlowStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		p := b.pipes()
		defer p.stop()
		for name, begin := range map[string]func() net.Conn{
			"handshake": func() net.Conn { return p.dial() },
			"header":    func() net.Conn { return p.shake() },
		} {
			begun := time.Now()
			c := begin()
			go func() { _, _ = io.Copy(io.Discard, c) }()
			var err error
			if name == "handshake" {
				_, err = c.Write([]byte{22, 3, 1, 1, 0}) // of 256 bytes
			}
			for err == nil {
				_, err = io.WriteString(c, "x")
				time.Sleep(time.Second)
			}
			if took := time.Since(begun); took < headerTime || took > headerTime+2*time.Second {
				t.Errorf("%s: cut off after %v", name, took)
			}
			c.Close()
		}
	})
}

// TestReaderThatTakesNothing: a response is not buffered for a client that does not
// read, and is aborted.
func TestReaderThatTakesNothing(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard(t)
				var written atomic.Int64
				ended := make(chan error, 1)
				b.config.CadvisorMetrics = func(_ context.Context, w io.Writer) error {
					piece := make([]byte, 4096)
					for {
						if _, err := w.Write(piece); err != nil {
							ended <- err
							return err
						}
						written.Add(int64(len(piece)))
					}
				}
				p := b.pipes()
				defer p.stop()
				begun := time.Now()
				response, err := b.send(t.Context(), p.client(protocol, b.adminCertificate()), "GET", "/metrics/cadvisor", nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				<-ended
				if took := time.Since(begun); took < writeTimeout || took > writeTimeout+rearm+farewell {
					t.Errorf("given up after %v", took)
				}
				if n := written.Load(); n > 256<<10 {
					t.Errorf("%d bytes were made for nobody", n)
				}
				synctest.Wait()
				if len(b.server.slots.snapshots)+len(b.server.slots.requests) != 0 {
					t.Error("places were not given back")
				}
			})
		})
	}
}

// TestReaderThatTakesLittle: the duration of a snapshot response is limited, even if
// the client reads regularly.
func TestReaderThatTakesLittle(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard(t)
				ended := make(chan error, 1)
				b.config.CadvisorMetrics = func(_ context.Context, w io.Writer) error {
					for {
						if _, err := w.Write(make([]byte, 4096)); err != nil {
							ended <- err
							return err
						}
					}
				}
				p := b.pipes()
				defer p.stop()
				begun := time.Now()
				response, err := b.send(t.Context(), p.client(protocol, b.adminCertificate()), "GET", "/metrics/cadvisor", nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				var reader sync.WaitGroup
				defer reader.Wait()
				reader.Go(func() {
					for err := error(nil); err == nil; time.Sleep(10 * time.Second) {
						_, err = io.CopyN(io.Discard, response.Body, 64<<10)
					}
				})
				<-ended
				if took := time.Since(begun); took < snapshotTime-writeTimeout || took > snapshotTime+rearm+farewell {
					t.Errorf("given up after %v", took)
				}
			})
		})
	}
}

// TestSlowBody: reading a body is limited to ten seconds; the response after it may
// take longer.
func TestSlowBody(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard(t)
				b.config.Summary = func(ctx context.Context, w io.Writer, _ bool) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Minute):
					}
					_, err := io.WriteString(w, "{}")
					return err
				}
				p := b.pipes()
				defer p.stop()
				c := p.client(protocol, b.adminCertificate())
				form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
				response, err := b.send(t.Context(), c, "POST", "/stats/summary", form, io.MultiReader(strings.NewReader("only_cpu_"), strings.NewReader("and_memory=true")))
				if err != nil {
					t.Fatal(err)
				}
				if got := b.read(response); got.code != 200 || got.text != "{}" {
					t.Errorf("%d %q", got.code, got.text)
				}
				begun := time.Now()
				in, out := io.Pipe()
				defer out.Close()
				response, err = b.send(t.Context(), c, "POST", "/stats/summary", form, in)
				if err == nil {
					if got := b.read(response); got.code != 500 {
						t.Errorf("%d %q", got.code, got.text)
					}
				}
				if took := time.Since(begun); took != bodyTime {
					t.Errorf("a body that does not come was waited for %v: %v", took, err)
				}
			})
		})
	}
}

// TestTakenOver: a hijacked connection has no deadlines.
func TestTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		b.config.Streaming = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				defer c.Close()
				time.Sleep(10 * time.Hour)
				_, _ = io.WriteString(c, "late\n")
			}()
		})
		p := b.pipes()
		defer p.stop()
		c := p.shake(b.adminCertificate())
		defer c.Close()
		if _, err := io.WriteString(c, "POST /exec/default/web/app HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); line != "late\n" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
	})
}

// TestSessionIsNotDisplaced: a connection with a session is not idle, although the
// handler of its request has returned. If all places are taken, another user gets
// the place of an idle connection.
func TestSessionIsNotDisplaced(t *testing.T) {
	b := newBoard(t)
	b.cluster.Grant("token", "app")
	b.cluster.Allow("app", "get", "healthz")
	sessions := make(chan net.Conn, 1)
	b.config.Streaming = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		sessions <- c
	})
	b.start()
	session, err := tls.Dial("tcp", b.address, b.tls(b.adminCertificate()))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := io.WriteString(session, "POST /exec/default/web/app HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	server := <-sessions
	defer server.Close()
	for i := range maxPromoted - 1 {
		if got := b.ask(b.admin(), "GET", "/healthz"); got.code != 200 {
			t.Fatalf("connection %d: %d", i, got.code)
		}
	}
	if got := b.ask(b.client("token"), "GET", "/healthz"); got.code != 200 {
		t.Fatalf("another user: %d", got.code)
	}
	if _, err := io.WriteString(server, "alive\n"); err != nil {
		t.Errorf("the session was displaced: %v", err)
	}
	if line, err := bufio.NewReader(session).ReadString('\n'); line != "alive\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// TestEnd: at shutdown a response in flight gets a short time and is then aborted;
// connections in the handshake are closed.
func TestEnd(t *testing.T) {
	for _, protocol := range protocols {
		for name, tt := range map[string]struct {
			takes time.Duration
			whole bool
		}{"soon done": {time.Second, true}, "never done": {time.Hour, false}} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBoard(t)
					begun := make(chan struct{})
					b.config.Summary = func(ctx context.Context, w io.Writer, _ bool) error {
						close(begun)
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(tt.takes):
						}
						_, err := io.WriteString(w, "{}")
						return err
					}
					p := b.pipes()
					c := p.client(protocol, b.adminCertificate())
					answered := make(chan bool)
					go func() {
						response, err := b.send(t.Context(), c, "GET", "/stats/summary", nil, nil)
						if err == nil {
							_, err = io.ReadAll(response.Body)
							response.Body.Close()
						}
						answered <- err == nil
					}()
					<-begun
					stranger := p.dial()
					at := time.Now()
					stopped := make(chan struct{})
					go func() { defer close(stopped); p.stop() }()
					if got := <-answered; got != tt.whole {
						t.Errorf("answered: %v", got)
					}
					<-stopped
					if took := time.Since(at); took > shutdownTimeout+time.Second {
						t.Errorf("the end took %v", took)
					}
					stranger.Close()
				})
			})
		}
	}
}

// TestEndDuringReview: at shutdown a review of a token is aborted, as other requests are.
func TestEndDuringReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		begun := make(chan struct{})
		b.trust(authn.Config{Review: func(ctx context.Context, _ *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
			close(begun)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		p := b.pipes()
		c := p.client("HTTP/1.1")
		c.token = "token"
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if response, err := b.send(t.Context(), c, "GET", "/healthz", nil, nil); err == nil {
				response.Body.Close()
			}
		}()
		<-begun
		at := time.Now()
		p.stop()
		if took := time.Since(at); took > shutdownTimeout+time.Second {
			t.Errorf("the end took %v", took)
		}
		<-answered
	})
}

// TestAddressThatComesLate: listening is retried, and the end of the context
// interrupts the backoff.
func TestAddressThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		s := b.build()
		begun := time.Now()
		var at []time.Duration
		first := &pipes{b: b, coming: make(chan net.Conn), closed: make(chan struct{})}
		second := &pipes{b: b, coming: make(chan net.Conn), closed: make(chan struct{})}
		s.listen = func(context.Context) (net.Listener, error) {
			at = append(at, time.Since(begun)/time.Second)
			switch {
			case len(at) < 7:
				return nil, errors.New("cannot assign requested address")
			case len(at) == 7:
				return first, nil
			default:
				return second, nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		b.url = "https://127.0.0.1"
		for _, p := range []*pipes{first, second} {
			c := p.client("HTTP/1.1", b.adminCertificate())
			if got := b.ask(c, "GET", "/healthz"); got.code != 200 {
				t.Errorf("%d", got.code)
			}
			c.http.CloseIdleConnections()
			first.Close() // accepting fails, and is begun anew
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]time.Duration{0, 1, 3, 7, 15, 30, 45, 46}, at); diff != "" {
			t.Errorf("tries in seconds (-want +got):\n%s", diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newBoard(t).build()
		s.listen = func(context.Context) (net.Listener, error) { return nil, errors.New("no address") }
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		if err := s.Run(ctx); err != nil || time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// TestHugeHeaders: an oversized header is rejected before authentication.
func TestHugeHeaders(t *testing.T) {
	b := newBoard(t)
	b.start()
	c, err := tls.Dial("tcp", b.address, b.tls())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, "GET /pods HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
	}()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 431 ") {
		t.Errorf("%q, %v", line, err)
	}
	if n := len(b.cluster.TokenReviews()); n != 0 {
		t.Errorf("%d reviews", n)
	}
}

// TestStrangersDisplaceStrangers: with any number of unauthenticated connections, an
// authorized client keeps its connection and gets new ones.
func TestStrangersDisplaceStrangers(t *testing.T) {
	b := newBoard(t)
	b.cluster.Grant("token", "app")
	b.cluster.Allow("app", "get", "healthz")
	b.start()
	stays := map[string]*client{"certificate": b.admin(), "token": b.client("token")}
	for name, c := range stays {
		if got := b.ask(c, "GET", "/healthz"); got.code != 200 {
			t.Fatalf("%s: %d", name, got.code)
		}
	}
	gone := make(chan struct{}, 3*maxPending)
	for i := range 3 * maxPending {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}} // many hosts: one would wait for its own
		raw, err := from.DialContext(t.Context(), "tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		if i%2 == 0 { // some get further
			if _, err := raw.Write([]byte{22, 3, 1, 0, 200}); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			_, _ = io.Copy(io.Discard, raw)
			gone <- struct{}{}
		}()
	}
	for range 2 * maxPending {
		<-gone
	}
	for name, c := range stays {
		reused := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		response, err := b.send(ctx, c, "GET", "/healthz", nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := b.read(response); got.code != 200 || !reused {
			t.Errorf("%s: %d, on the same connection: %v", name, got.code, reused)
		}
	}
	if got := b.ask(b.admin(), "GET", "/healthz"); got.code != 200 {
		t.Errorf("a new connection: %d", got.code)
	}
}

// TestCertificateWithoutRights: each node of the cluster has a certificate of its CA. An
// unauthorized client only displaces other unauthorized ones, regardless of the number
// of its requests.
func TestCertificateWithoutRights(t *testing.T) {
	b := newBoard(t)
	b.start()
	admin := b.admin()
	if got := b.ask(admin, "GET", "/healthz"); got.code != 200 {
		t.Fatal(got.code)
	}
	with := b.tls(b.ca.Client("system:node:other", []string{"system:nodes"}, nil))
	var all []*tls.Conn
	for i := range 2 * maxPending {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}}
		c, err := tls.DialWithDialer(from, "tcp", b.address, with)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /pods HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		// The limit is for a test that fails: nothing ends the connection then.
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != 403 {
			t.Fatalf("%d, %v", response.StatusCode, err)
		}
		response.Body.Close()
		all = append(all, c)
	}
	for i, c := range all[:maxPending] {
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d has a place, and no right", i)
		}
	}
	reused := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	response, err := b.send(ctx, admin, "GET", "/healthz", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.read(response); got.code != 200 || !reused {
		t.Errorf("who may: %d, on the same connection: %v", got.code, reused)
	}
}

// TestStrangersRequests: a connection without a certificate has few concurrent
// requests until one was allowed.
func TestStrangersRequests(t *testing.T) {
	b := newBoard(t)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	b.trust(authn.Config{CacheTTL: time.Minute, Review: func(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
		<-hold
		return b.cluster.TokenReview(ctx, r)
	}})
	b.cluster.Grant("token", "app", "system:masters")
	b.start()
	ask := func(c *client, n int) map[int]int {
		codes := make(chan int, n)
		for range n {
			go func() {
				response, err := b.send(t.Context(), c, "GET", "/healthz", nil, nil)
				if err != nil {
					codes <- 0
					return
				}
				response.Body.Close()
				codes <- response.StatusCode
			}()
		}
		out := map[int]int{}
		for i := range n {
			if i == n-pendingRequests {
				release() // those who waited
			}
			out[<-codes]++
		}
		return out
	}
	c := b.over("HTTP/2.0")
	c.token = "token"
	// One connection, which must be there before all ask at once.
	if response, err := b.send(t.Context(), &client{http: c.http}, "GET", "/healthz", nil, nil); err != nil || response.StatusCode != 401 {
		t.Fatal(response, err)
	} else {
		response.Body.Close()
	}
	if diff := cmp.Diff(map[int]int{429: 4, 200: pendingRequests}, ask(c, pendingRequests+4)); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[int]int{200: maxStreams}, ask(c, maxStreams)); diff != "" {
		t.Errorf("codes once known (-want +got):\n%s", diff)
	}
}

// TestPanic: a panic of a handler only ends its connection.
func TestPanic(t *testing.T) {
	b := newBoard(t)
	b.config.Streaming = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })
	b.start()
	for _, protocol := range protocols {
		c := b.over(protocol, b.adminCertificate())
		response, err := b.send(t.Context(), c, "POST", "/exec/default/web/app", nil, nil)
		if err == nil {
			response.Body.Close()
			t.Errorf("%s: %s", protocol, response.Status)
		}
		if got := b.ask(c, "GET", "/healthz"); got.code != 200 {
			t.Errorf("%s: %d", protocol, got.code)
		}
	}
}

// own is the number of goroutines of an idle server: Run, and two that accept.
const own = 3

// TestIdle: an idle server has the same goroutines before and after requests.
func TestIdle(t *testing.T) {
	b := newBoard(t)
	before := runtime.NumGoroutine()
	stop := b.start()
	if n := runtime.NumGoroutine() - before; n > own {
		t.Errorf("%d goroutines before anybody asks", n)
	}
	for _, protocol := range protocols {
		c := b.over(protocol, b.adminCertificate())
		for path := range strings.FieldsSeq("/pods /metrics /stats/summary /healthz /logs/ /configz") {
			if got := b.ask(c, "GET", path); got.code != 200 {
				t.Errorf("%s: %d", path, got.code)
			}
		}
		c.http.CloseIdleConnections()
	}
	settled(t, before+own)
	stop()
	settled(t, before)
}
