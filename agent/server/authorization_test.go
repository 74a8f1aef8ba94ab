package server

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authz"
)

// TestWhoMayDoWhat requests each path as each kind of client, through TLS, guard and
// routes. A rejected request gets nothing of the route's response; an allowed one gets
// the route's own response.
func TestWhoMayDoWhat(t *testing.T) {
	routes := []struct{ method, path, verb string }{
		{"GET", "/pods", "get"}, {"GET", "/runningpods/", "get"}, {"GET", "/healthz", "get"}, {"GET", "/healthz/syncloop", "get"},
		{"GET", "/configz", "get"}, {"GET", "/stats/summary", "get"}, {"POST", "/stats/summary", "create"}, {"GET", "/metrics", "get"},
		{"GET", "/metrics/resource", "get"}, {"GET", "/metrics/cadvisor", "get"}, {"GET", "/metrics/probes", "get"}, {"GET", "/logs/", "get"},
		{"GET", "/logs/messages", "get"}, {"GET", "/containerLogs/default/web/app", "get"}, {"POST", "/exec/default/web/app", "create"}, {"GET", "/exec/default/web/app", "create"},
		{"GET", "/attach/default/web/app", "create"}, {"GET", "/portForward/default/web", "create"}, {"GET", "/run/default/web/app", "create"}, {"PUT", "/exec/default/web/app", "create"},
		{"POST", "/run/default/web/app", "create"}, {"POST", "/attach/default/web/app", "create"}, {"POST", "/portForward/default/web", "create"}, {"GET", "/debug/pprof/heap", "get"},
		{"PUT", "/debug/flags/v", "update"}, {"POST", "/checkpoint/default/web/app", "create"}, {"GET", "/statusz", "get"}, {"GET", "/flagz", "get"},
		{"GET", "/nothing", "get"}, {"DELETE", "/pods", "delete"}, {"HEAD", "/metrics", ""},
	}
	stranger := apiservertest.NewAuthority(t, "kubernetes")
	masters := []string{"system:masters"}
	for _, tt := range []struct {
		name      string
		anonymous bool
		token     string
		shown     func(*board) tls.Certificate
		grant     func(*apiservertest.Server)
		known     bool
		may       map[string][]string // subresources by verb; "*" is every one
	}{
		{name: "nobody"},
		{name: "anonymous, allowed and without rights", anonymous: true, known: true},
		{
			name: "anonymous, who may ask for health", anonymous: true, known: true, may: map[string][]string{"get": {"healthz"}},
			grant: func(s *apiservertest.Server) { s.Allow(authn.Unauthenticated, "get", "healthz") },
		},
		{
			name: "another node", known: true,
			shown: func(b *board) tls.Certificate { return b.ca.Client("system:node:other", []string{"system:nodes"}, nil) },
		},
		{
			name: "service account without rights", known: true, token: "sa",
			grant: func(s *apiservertest.Server) { s.Grant("sa", "system:serviceaccount:ns:default") },
		},
		{
			name: "metrics-server", known: true, token: "ms", may: map[string][]string{"get": {"metrics"}},
			grant: func(s *apiservertest.Server) {
				s.Grant("ms", "system:serviceaccount:kube-system:metrics-server")
				s.Allow("system:serviceaccount:kube-system:metrics-server", "get", "metrics")
			},
		},
		{
			name: "agent with finer rights", known: true, token: "agent", may: map[string][]string{"get": {"pods", "healthz", "configz", "stats", "log"}},
			grant: func(s *apiservertest.Server) {
				s.Grant("agent", "agent")
				s.Allow("agent", "get", "pods", "healthz", "configz", "stats", "log")
			},
		},
		{
			name: "monitoring that may get proxy", known: true, may: map[string][]string{"get": {"proxy"}},
			shown: func(b *board) tls.Certificate { return b.ca.Client("monitoring", nil, nil) },
			grant: func(s *apiservertest.Server) { s.Allow("monitoring", "get", "proxy") },
		},
		{
			name: "operator who may create proxy", known: true, may: map[string][]string{"create": {"proxy"}},
			shown: func(b *board) tls.Certificate { return b.ca.Client("operator", nil, nil) },
			grant: func(s *apiservertest.Server) { s.Allow("operator", "create", "proxy") },
		},
		{
			name: "admin", known: true, may: map[string][]string{"*": {"*"}},
			shown: func(b *board) tls.Certificate { return b.ca.Client("kubernetes-admin", masters, nil) },
		},
		{
			name: "API server", known: true, may: map[string][]string{"*": {"*"}},
			shown: func(b *board) tls.Certificate {
				return b.ca.Client("kube-apiserver-kubelet-client", []string{"kubeadm:cluster-admins"}, nil)
			},
			grant: func(s *apiservertest.Server) { s.Allow("kubeadm:cluster-admins", "*", "*") },
		},
		{
			name: "admin of another CA", anonymous: true,
			shown: func(*board) tls.Certificate { return stranger.Client("kubernetes-admin", masters, nil) },
		},
		{
			name: "admin whose certificate has expired", anonymous: true,
			shown: func(b *board) tls.Certificate {
				return b.ca.Client("kubernetes-admin", masters, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
			},
		},
		{name: "token that nobody has given", anonymous: true, token: "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBoard(t)
			b.trust(authn.Config{CacheTTL: time.Minute, Anonymous: tt.anonymous})
			if tt.grant != nil {
				tt.grant(b.cluster)
			}
			b.start()
			var shown []tls.Certificate
			if tt.shown != nil {
				shown = append(shown, tt.shown(b))
			}
			c := b.client(tt.token, shown...)
			admin := b.admin()
			for _, route := range routes {
				got := b.ask(c, route.method, route.path)
				may := slices.ContainsFunc(authz.Subresources(route.path), func(subresource string) bool {
					all := slices.Concat(tt.may[route.verb], tt.may["*"])
					return slices.Contains(all, subresource) || slices.Contains(all, "*")
				})
				switch {
				case !tt.known:
					if got.code != 401 || got.text != "Unauthorized" && route.method != "HEAD" {
						t.Errorf("%s %s: %d %q, want 401", route.method, route.path, got.code, got.text)
					}
				case !may:
					if got.code != 403 || !strings.HasPrefix(got.text, "Forbidden (user=") && route.method != "HEAD" {
						t.Errorf("%s %s: %d %q, want 403", route.method, route.path, got.code, got.text)
					}
				default:
					if want := b.ask(admin, route.method, route.path); got.code != want.code || got.text != want.text || got.code == 403 {
						t.Errorf("%s %s: %d %q, but the admin gets %d %q", route.method, route.path, got.code, got.text, want.code, want.text)
					}
				}
			}
		})
	}
}
