package local

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// freeAddress returns an unused loopback address.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestHealthzBesideSilentConnections shows that a watchdog receives a response
// although other users of the host hold connections without a complete request,
// and before those time out.
func TestHealthzBesideSilentConnections(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "a part of a request": "GET /healthz HTTP/1.1\r\n"} {
		t.Run(name, func(t *testing.T) { besideSilent(t, text) })
	}
}

func besideSilent(t *testing.T, text string) {
	address := freeAddress(t)
	start(t, Config{HealthzAddress: address})
	dial := func() (net.Conn, error) { return new(net.Dialer).DialContext(t.Context(), "tcp", address) }
	ask := func() error {
		request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/healthz", nil)
		if err != nil {
			return err
		}
		c := http.Client{Timeout: readTimeout * 3 / 5, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := c.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
		return err
	}
	for ask() != nil { // it listens
		time.Sleep(time.Millisecond)
	}
	var silent sync.WaitGroup
	defer silent.Wait()
	stop := make(chan struct{})
	defer close(stop)
	ready := make(chan struct{}, 2*maxConnections)
	for range 2 * maxConnections {
		silent.Go(func() {
			told := sync.OnceFunc(func() { ready <- struct{}{} })
			for {
				c, err := dial()
				if err == nil {
					_, _ = io.WriteString(c, text)
					var hang sync.WaitGroup
					cut := make(chan struct{})
					hang.Go(func() {
						select {
						case <-stop:
						case <-cut:
						}
						c.Close()
					})
					told()
					_, _ = io.Copy(io.Discard, c)
					close(cut)
					hang.Wait()
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 2 * maxConnections {
		<-ready
	}
	for i := range 5 {
		if err := ask(); err != nil {
			t.Errorf("question %d: %v", i, err)
		}
	}
}

// TestHealthzHost shows that a page of another site, whose name resolves to the
// loopback address, cannot read the failures.
func TestHealthzHost(t *testing.T) {
	for address, want := range map[string]map[string]int{
		"127.0.0.1:10248": {
			"127.0.0.1:10248": 200, "localhost:10248": 200, "LOCALHOST": 200, "[::1]:10248": 200, "10.0.0.7:10248": 200, "": 200,
			"evil.example:10248": 421, "evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:10248": 421,
		},
		"[::1]:10248":   {"[::1]:10248": 200, "evil.example": 421},
		"0.0.0.0:10248": {"node-1.example:10248": 200, "10.0.0.7:10248": 200},
	} {
		h := newServer(t, Config{HealthzAddress: address}).healthz()
		for _, path := range []string{"/healthz", "/healthz/ping", "/healthz?verbose"} {
			got := map[string]int{}
			for host := range want {
				r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
				r.Host = host
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				got[host] = w.Code
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s at %s (-want +got):\n%s", path, address, diff)
			}
		}
	}
}
