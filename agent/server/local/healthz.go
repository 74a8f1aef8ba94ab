package local

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/server/connlimit"
)

// listenHealthz listens for /healthz. The kernel defers accepting a connection
// until its request has arrived or readTimeout is over (tcp(7),
// TCP_DEFER_ACCEPT), because any user of the host can open many.
func (s *Server) listenHealthz(ctx context.Context) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// If the kernel does not support it, connections without a request are
		// accepted too and displace each other.
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, int(readTimeout/time.Second))
		})
	}}
	l, err := lc.Listen(ctx, "tcp", s.config.HealthzAddress)
	if err != nil {
		return nil, err
	}
	return connlimit.New(l, connlimit.Config{
		Promoted: maxConnections, Pending: maxConnections, Grace: readGrace,
	}), nil
}

// PagePrefix is the prefix of the paths of the status page other than /.
const PagePrefix = "/page/"

// healthz serves /healthz and /healthz/NAME in the format of Kubernetes
// components (k8s.io/apiserver/pkg/server/healthz): 200 with "ok", or 500 with
// a line for each check. ?verbose adds the lines to 200 too. ?exclude=NAME
// excludes a check. Unlike upstream, the response has the reason of a failure,
// because this is the first diagnostic on a node and the reasons contain no
// secrets.
func (s *Server) healthz() http.Handler {
	checks := WithPing(s.config.Checks)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		report, failed := RunChecks(checks, query["exclude"], time.Now(), error.Error)
		switch {
		case len(failed) > 0:
			WriteText(w, http.StatusInternalServerError, report+"healthz check failed\n")
		case query.Has("verbose"):
			WriteText(w, http.StatusOK, report+"healthz check passed\n")
		default:
			WriteText(w, http.StatusOK, "ok")
		}
	})
	for _, check := range checks {
		mux.HandleFunc("GET /healthz/"+check.Name, func(w http.ResponseWriter, _ *http.Request) {
			if err := check.Healthy(time.Now()); err != nil {
				WriteText(w, http.StatusInternalServerError, fmt.Sprintf("%s failed: %v\n", check.Name, err))
				return
			}
			WriteText(w, http.StatusOK, "ok")
		})
	}
	all := http.NewServeMux()
	all.Handle("/", s.rejectForeignHosts(mux))
	if s.config.Page != nil {
		all.Handle("/{$}", s.config.Page)
		all.Handle(PagePrefix, s.config.Page)
	}
	return promoteOnRequest(all)
}

// promoteOnRequest promotes a connection once it has sent a request. Connections without
// a request, which any user of the host can open, then cannot displace it.
func promoteOnRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*connlimit.Conn); ok {
			c.Begin()
			defer c.End()
			c.Promote("")
		}
		next.ServeHTTP(w, r)
	})
}

// rejectForeignHosts rejects requests for a host name other than localhost, such as those
// of a web site whose name resolves to this address (DNS rebinding). If the listen address
// is not a loopback address, it accepts any name, because monitoring may use one.
func (s *Server) rejectForeignHosts(next http.Handler) http.Handler {
	bound, err := netip.ParseAddrPort(s.config.HealthzAddress)
	loopback := err == nil && bound.Addr().Unmap().IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback && !isAddressOrLocalhost(r.Host) {
			http.Error(w, "/healthz is served only for localhost and IP addresses", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isAddressOrLocalhost reports whether a Host header is an IP address,
// localhost, which no foreign DNS server resolves (RFC 6761, section 6.3), or
// empty, as in HTTP/1.0.
func isAddressOrLocalhost(header string) bool {
	host := Host(header)
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}

// Host returns the host of a Host header, without port and brackets.
func Host(header string) string {
	if name, _, err := net.SplitHostPort(header); err == nil {
		header = name
	}
	return strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
}

// WithPing returns the checks of /healthz after one that always passes.
func WithPing(checks []Check) []Check {
	return append([]Check{{Name: "ping", Healthy: func(time.Time) error { return nil }}}, checks...)
}

// RunChecks runs the checks that are not excluded. It returns a report with a line for
// each, in which a failure has the text of reason, and the names of the failed ones.
func RunChecks(checks []Check, exclude []string, now time.Time, reason func(error) string) (report string, failed []string) {
	for _, check := range checks {
		if slices.Contains(exclude, check.Name) {
			report += fmt.Sprintf("[+]%s excluded: ok\n", check.Name)
		} else if err := check.Healthy(now); err != nil {
			report += fmt.Sprintf("[-]%s failed: %s\n", check.Name, reason(err))
			failed = append(failed, check.Name)
		} else {
			report += fmt.Sprintf("[+]%s ok\n", check.Name)
		}
	}
	return report, failed
}

// WriteText sends a short plain text, which browsers must not interpret as another type.
func WriteText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // fails only if the client has disconnected
}
