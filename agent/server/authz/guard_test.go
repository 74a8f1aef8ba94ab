package authz

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/server/authn"
)

// board is a guarded kubelet API with a fake cluster.
type board struct {
	t       testing.TB
	ca      *apiservertest.Authority
	cluster *apiservertest.Server
	caFile  string
	guard   *Guard
	url     string

	mu     sync.Mutex
	served []string // user and path
}

// newBoard returns a guard in front of a handler that serves every path.
func newBoard(t testing.TB, anonymous bool) *board {
	t.Helper()
	b := &board{t: t, ca: apiservertest.NewAuthority(t, "kubernetes"), cluster: apiservertest.New(), caFile: filepath.Join(t.TempDir(), "ca.crt")}
	if err := os.WriteFile(b.caFile, b.ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	who, err := authn.New(authn.Config{
		ClientCAFile: b.caFile, Review: b.cluster.TokenReview, CacheTTL: 2 * time.Minute, Anonymous: anonymous, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		user := authn.UserFrom(r.Context())
		b.served = append(b.served, user.Username+" "+r.URL.Path)
		if r.Header.Get("Authorization") != "" {
			t.Errorf("%s: the handler is given the token", r.URL.Path)
		}
		_, _ = io.WriteString(w, "served "+user.Username)
	})
	b.guard = &Guard{Authn: who, Authz: newAuthorizer(t, b.cluster.AccessReview), Next: next, Log: slog.New(slog.DiscardHandler)}
	return b
}

// listen serves the API over TLS.
func (b *board) listen() {
	b.t.Helper()
	server := httptest.NewUnstartedServer(b.guard)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{b.ca.Server()}, ClientAuth: tls.RequestClientCert}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	b.t.Cleanup(server.Close)
	b.url = server.URL
}

// client is a client with an optional certificate and token.
type client struct {
	http  http.Client
	token string
}

func (b *board) client(token string, shown ...tls.Certificate) *client {
	b.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.ca.PEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: shown}}
	b.t.Cleanup(transport.CloseIdleConnections)
	return &client{token: token, http: http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask sends a request and returns the response.
func (b *board) ask(c *client, method, path string) (code int, header http.Header, text string) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(data)
}

// TestWhoMayDoWhat requests every route of the kubelet's API as each kind of client,
// over TLS.
func TestWhoMayDoWhat(t *testing.T) {
	methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
	type rights map[string][]string // by verb; "*" is every one
	everything := rights{"*": {"*"}}
	stranger := apiservertest.NewAuthority(t, "kubernetes")
	masters := []string{"system:masters"}
	for _, tt := range []struct {
		name      string
		anonymous bool
		client    func(*board) *client
		user      string // "" is refused with 401
		rights    rights
	}{
		{name: "no credentials", client: func(b *board) *client { return b.client("") }},
		{
			name: "no credentials, anonymous allowed", anonymous: true, user: authn.Anonymous,
			client: func(b *board) *client { return b.client("") },
		},
		{
			name: "no credentials, anonymous may ask for health", anonymous: true, user: authn.Anonymous, rights: rights{"get": {"healthz"}},
			client: func(b *board) *client {
				b.cluster.Allow(authn.Unauthenticated, "get", "healthz")
				return b.client("")
			},
		},
		{
			name: "another node", user: "system:node:other",
			client: func(b *board) *client {
				return b.client("", b.ca.Client("system:node:other", []string{"system:nodes"}, nil))
			},
		},
		{
			name: "service account without rights", user: "system:serviceaccount:ns:default",
			client: func(b *board) *client {
				b.cluster.Grant("sa", "system:serviceaccount:ns:default", "system:serviceaccounts", "system:serviceaccounts:ns")
				return b.client("sa")
			},
		},
		{
			name: "metrics-server", user: "system:serviceaccount:kube-system:metrics-server", rights: rights{"get": {"metrics"}},
			client: func(b *board) *client {
				b.cluster.Grant("ms", "system:serviceaccount:kube-system:metrics-server", "system:serviceaccounts")
				b.cluster.Allow("system:serviceaccount:kube-system:metrics-server", "get", "metrics")
				return b.client("ms")
			},
		},
		{
			name: "agent with finer rights", user: "system:serviceaccount:monitoring:agent", rights: rights{"get": {"pods", "healthz", "configz", "stats"}},
			client: func(b *board) *client {
				b.cluster.Grant("agent", "system:serviceaccount:monitoring:agent", "agents")
				b.cluster.Allow("agents", "get", "pods", "healthz", "configz", "stats")
				return b.client("agent")
			},
		},
		{
			name: "proxy alone", user: "debugger", rights: rights{"get": {"proxy"}, "create": {"proxy"}},
			client: func(b *board) *client {
				b.cluster.Allow("debugger", "get", "proxy")
				b.cluster.Allow("debugger", "create", "proxy")
				return b.client("", b.ca.Client("debugger", nil, nil))
			},
		},
		{
			name: "ClusterRole system:kubelet-api-admin", user: "operator",
			rights: rights{"*": {"proxy", "metrics", "stats", "log", "pods", "healthz", "configz"}},
			client: func(b *board) *client {
				b.cluster.Allow("operator", "*", "proxy", "metrics", "stats", "log", "pods", "healthz", "configz")
				return b.client("", b.ca.Client("operator", nil, nil))
			},
		},
		{
			name: "admin", user: "kubernetes-admin", rights: everything,
			client: func(b *board) *client { return b.client("", b.ca.Client("kubernetes-admin", masters, nil)) },
		},
		{
			name: "API server", user: "kube-apiserver-kubelet-client", rights: everything,
			client: func(b *board) *client {
				b.cluster.Allow("kubeadm:cluster-admins", "*", "*")
				return b.client("", b.ca.Client("kube-apiserver-kubelet-client", []string{"kubeadm:cluster-admins"}, nil))
			},
		},
		{
			name: "admin of another CA", anonymous: true,
			client: func(b *board) *client { return b.client("", stranger.Client("kubernetes-admin", masters, nil)) },
		},
		{
			name: "admin whose certificate has expired", anonymous: true,
			client: func(b *board) *client {
				return b.client("", b.ca.Client("kubernetes-admin", masters, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }))
			},
		},
		{
			name: "serving certificate as a client's", anonymous: true,
			client: func(b *board) *client { return b.client("", b.ca.Server()) },
		},
		{
			name: "revoked token", anonymous: true,
			client: func(b *board) *client {
				b.cluster.Grant("token", "admin", masters...)
				b.cluster.Revoke("token")
				return b.client("token")
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBoard(t, tt.anonymous)
			b.listen()
			c := tt.client(b)
			may := func(verb string, any []string) bool {
				return slices.ContainsFunc(any, func(subresource string) bool {
					for _, all := range [][]string{tt.rights[verb], tt.rights["*"]} {
						if slices.Contains(all, subresource) || slices.Contains(all, "*") {
							return true
						}
					}
					return false
				})
			}
			for _, route := range routes {
				for _, method := range methods {
					want, text := http.StatusOK, "served "+tt.user
					switch verb := Verb(method, route.path); {
					case tt.user == "":
						want, text = http.StatusUnauthorized, "Unauthorized"
					case !may(verb, route.subresources):
						want = http.StatusForbidden
						text = fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=[%s])\n", tt.user, verb, strings.Join(route.subresources, " "))
					}
					if method == "HEAD" {
						text = ""
					}
					code, header, got := b.ask(c, method, route.path)
					if code != want || got != text {
						t.Errorf("%s %s: %d %q, want %d %q", method, route.path, code, got, want, text)
					}
					challenge := ""
					if want == http.StatusUnauthorized {
						challenge = `Bearer realm="kubelet"`
					}
					if got := header.Get("WWW-Authenticate"); got != challenge {
						t.Errorf("%s %s: WWW-Authenticate %q", method, route.path, got)
					}
					if want != http.StatusOK && (header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Content-Type") != "text/plain; charset=utf-8") {
						t.Errorf("%s %s: headers %v", method, route.path, header)
					}
				}
			}
			for _, served := range b.served {
				if user, _, _ := strings.Cut(served, " "); user != tt.user {
					t.Errorf("%s was served", served)
				}
			}
			// A token is reviewed once, and each right once.
			if n := len(b.cluster.TokenReviews()); n > 1 {
				t.Errorf("%d reviews of a token", n)
			}
			reviews := b.cluster.Reviews()
			if got := slices.Compact(slices.Sorted(slices.Values(reviews))); len(got) != len(reviews) || tt.user == "" && len(got) > 0 {
				t.Errorf("%d reviews of %d rights", len(reviews), len(got))
			}
		})
	}
}

func TestPathsThatAreNotClean(t *testing.T) {
	b := newBoard(t, false)
	b.listen()
	admin := b.client("", b.ca.Client("admin", []string{"system:masters"}, nil))
	for path, want := range map[string]string{
		"//metrics":                     "/metrics",
		"/pods/../exec/a/b/c?x=1":       "/exec/a/b/c?x=1",
		"/pods/%2e%2e/exec/a":           "/exec/a",
		"/pods%2f..%2fexec/a":           "/exec/a",
		"/logs/../../../etc/shadow":     "/etc/shadow",
		"/logs/%2e%2e/%2e%2e/shadow":    "/shadow",
		"/./pods/":                      "/pods/",
		"//evil.example/x":              "/evil.example/x",
		"/%5cevil.example/..":           "/",
		"/x/..//%5Cevil.example":        "/%5Cevil.example",
		"/" + strings.Repeat("a", 4096): "",
	} {
		code, header, _ := b.ask(admin, "GET", path)
		wantCode := http.StatusTemporaryRedirect
		if want == "" {
			wantCode = http.StatusRequestURITooLong
		}
		if code != wantCode || header.Get("Location") != want {
			t.Errorf("%.40s: %d, %q; want %d, %q", path, code, header.Get("Location"), wantCode, want)
		}
	}
	if len(b.served) != 0 || len(b.cluster.Reviews()) != 0 {
		t.Errorf("served %q, reviewed %q", b.served, b.cluster.Reviews())
	}
}

// TestCAChangesUnderAnOpenConnection: if its CA is removed from the bundle, a client is
// rejected from its next request on, on the same connection.
func TestCAChangesUnderAnOpenConnection(t *testing.T) {
	b := newBoard(t, false)
	b.listen()
	admin := b.client("", b.ca.Client("admin", []string{"system:masters"}, nil))
	if code, _, text := b.ask(admin, "GET", "/pods"); code != http.StatusOK {
		t.Fatalf("%d %q", code, text)
	}
	ctx, done := t.Context(), make(chan struct{})
	go func() {
		defer close(done)
		b.guard.Authn.Run(ctx)
	}()
	t.Cleanup(func() { <-done })
	before := b.guard.Authn.ClientCAs()
	other := apiservertest.NewAuthority(t, "other")
	if err := os.WriteFile(b.caFile+".new", other.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b.caFile+".new", b.caFile); err != nil {
		t.Fatal(err)
	}
	for b.guard.Authn.ClientCAs() == before {
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the bundle was not read again")
		}
	}
	if code, _, text := b.ask(admin, "GET", "/pods"); code != http.StatusUnauthorized {
		t.Errorf("%d %q", code, text)
	}
}

// virtual sends a request without a network, in virtual time.
func (b *board) virtual(token, path string, shown ...tls.Certificate) (int, string) {
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, path, nil)
	r.TLS = new(tls.ConnectionState)
	for _, cert := range shown {
		r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, cert.Leaf)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	b.guard.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestTokenIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, false)
		b.cluster.Grant("token", "app")
		b.cluster.Allow("app", "get", "metrics")
		var got []int
		ask := func() {
			code, _ := b.virtual("token", "/metrics")
			got = append(got, code)
		}
		ask()
		b.cluster.Revoke("token")
		time.Sleep(2*time.Minute - time.Nanosecond)
		ask()
		time.Sleep(time.Nanosecond)
		ask()
		if diff := cmp.Diff([]int{200, 200, 401}, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
	})
}

func TestOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, false)
		b.cluster.Grant("token", "app")
		b.cluster.Allow("app", "get", "metrics")
		cert := b.ca.Client("operator", nil, nil)
		b.cluster.Allow("operator", "get", "proxy")
		want := func(token, path string, code int, text string, shown ...tls.Certificate) {
			t.Helper()
			if gotCode, gotText := b.virtual(token, path, shown...); gotCode != code || !strings.HasPrefix(gotText, text) {
				t.Errorf("%s: %d %q, want %d %q", path, gotCode, gotText, code, text)
			}
		}
		const forbidden = "Forbidden (user=app, verb=get, resource=nodes, subresource(s)=[stats])\n"
		want("token", "/metrics", 200, "served app")
		want("token", "/stats/summary", 403, forbidden)
		want("", "/containerLogs/a/b/c", 200, "served operator", cert)

		b.cluster.Fail(apiservertest.ErrAway)
		want("token", "/metrics", 200, "served app")
		want("token", "/stats/summary", 403, forbidden)
		want("", "/pods", 200, "served operator", cert)
		want("other", "/metrics", 401, "Unauthorized")
		want("token", "/logs/", 503, "Authorization error (user=app, verb=get, resource=nodes, subresource=log): the node cannot get a SubjectAccessReview")
		time.Sleep(2 * time.Minute) // the token is no longer known
		want("token", "/metrics", 401, "Unauthorized")
		want("", "/pods", 200, "served operator", cert)
		time.Sleep(3 * time.Minute) // nor is what the operator may
		want("", "/pods", 503, "Authorization error (user=operator, verb=get, resource=nodes, subresource=pods): ", cert)

		b.cluster.Fail(apierrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", errors.New("not a node")))
		want("", "/pods", 500, "Authorization error (user=operator, verb=get, resource=nodes, subresource=pods)", cert)

		b.cluster.Fail(nil)
		want("token", "/metrics", 200, "served app")
		want("", "/pods", 200, "served operator", cert)
	})
}

func BenchmarkGuard(b *testing.B) {
	board := newBoard(b, false)
	board.cluster.Grant("token", "app")
	board.cluster.Allow("app", "get", "metrics")
	board.guard.Next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest(http.MethodGet, "/metrics/resource", nil)
	w := httptest.NewRecorder()
	for b.Loop() {
		r.Header.Set("Authorization", "Bearer token")
		board.guard.ServeHTTP(w, r)
	}
	if w.Code != http.StatusOK {
		b.Fatal(w.Code)
	}
}
