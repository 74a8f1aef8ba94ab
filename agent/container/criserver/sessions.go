package criserver

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// headerTimeout limits the time for a request's header.
const headerTimeout = 10 * time.Second

// sessions forwards the sessions of clients to the Unix sockets of the runtime. A nil one does
// not.
type sessions struct {
	address string
	http    *http.Server

	mu     sync.Mutex
	socket string // of the last session: a runtime has one
}

// newSessions serves sessions on a listener.
func newSessions(l net.Listener) *sessions {
	s := &sessions{address: l.Addr().String()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "localhost" },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				s.mu.Lock()
				socket := s.socket
				s.mu.Unlock()
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		},
	}
	s.http = &http.Server{Handler: proxy, ReadHeaderTimeout: headerTimeout}
	go func() { _ = s.http.Serve(l) }() // ends with close
	return s
}

// url returns the URL for a client of a session with the URL unix:/SOCKET:/PATH. It returns
// another URL as it is.
func (s *sessions) url(text string) string {
	rest, isUnix := strings.CutPrefix(text, "unix:")
	socket, path, ok := strings.Cut(rest, ":")
	if s == nil || !isUnix || !ok {
		return text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket = socket
	return "http://" + s.address + path
}

func (s *sessions) close() {
	if s != nil {
		_ = s.http.Close() // closes the listener
	}
}
