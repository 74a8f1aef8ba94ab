package authn

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

// newAuthenticator returns an Authenticator for certificates of ca and tokens of server,
// either of which may be nil.
func newAuthenticator(t testing.TB, ca *apiservertest.Authority, server *apiservertest.Server, change func(*Config)) *Authenticator {
	t.Helper()
	c := Config{CacheTTL: 2 * time.Minute, Log: slog.New(slog.DiscardHandler)}
	if ca != nil {
		c.ClientCAFile = filepath.Join(t.TempDir(), "ca.crt")
		write(t, c.ClientCAFile, ca.PEM())
	}
	if server != nil {
		c.Review = server.TokenReview
	}
	if change != nil {
		change(&c)
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// request returns a request with a token, if it is not empty, and certificates.
func request(token string, shown ...tls.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/pods", nil)
	r.TLS = &tls.ConnectionState{}
	for _, cert := range shown {
		r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, cert.Leaf)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestCertificates(t *testing.T) {
	ca, stranger := apiservertest.NewAuthority(t, "kubernetes"), apiservertest.NewAuthority(t, "kubernetes")
	between := ca.Under("between")
	uid := func(values ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, value := range values {
				c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: asn1.X509UID(), Value: value})
			}
		}
	}
	client := func(change func(*x509.Certificate)) tls.Certificate {
		return ca.Client("admin", []string{"ops", "system:masters"}, change)
	}
	intermediate, err := x509.ParseCertificate(decode(t, between.PEM()))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		shown []tls.Certificate
		want  *User  // without Extra
		error string // part of it
	}{
		{"good", []tls.Certificate{client(nil)}, &User{Username: "admin", Groups: []string{"ops", "system:masters", Authenticated}}, ""},
		{"no groups", []tls.Certificate{ca.Client("admin", nil, nil)}, &User{Username: "admin", Groups: []string{Authenticated}}, ""},
		{"says that it is authenticated", []tls.Certificate{ca.Client("a", []string{Authenticated}, nil)}, &User{Username: "a", Groups: []string{Authenticated}}, ""},
		{"named as the anonymous", []tls.Certificate{ca.Client(Anonymous, nil, nil)}, &User{Username: Anonymous}, ""},
		{"UID", []tls.Certificate{client(uid("7"))}, &User{Username: "admin", UID: "7", Groups: []string{"ops", "system:masters", Authenticated}}, ""},
		{"two UIDs", []tls.Certificate{client(uid("7", "8"))}, nil, "more than one UID"},
		{"empty UID", []tls.Certificate{client(uid(""))}, nil, "UID is empty"},
		{"names nobody", []tls.Certificate{ca.Client("", []string{"system:masters"}, nil)}, nil, ErrNoCredentials.Error()},
		{"other CA of the same name", []tls.Certificate{stranger.Client("admin", []string{"system:masters"}, nil)}, nil, "unknown authority"},
		{"expired", []tls.Certificate{client(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })}, nil, "expired"},
		{"not valid yet", []tls.Certificate{client(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })}, nil, "not yet valid"},
		{"of a server", []tls.Certificate{ca.Server()}, nil, "incompatible key usage"},
		{"through another CA", []tls.Certificate{between.Client("admin", nil, nil), {Leaf: intermediate}}, &User{Username: "admin", Groups: []string{Authenticated}}, ""},
		{"through a CA that is not shown", []tls.Certificate{between.Client("admin", nil, nil)}, nil, "unknown authority"},
		{"chain that is too long", append([]tls.Certificate{client(nil)}, make([]tls.Certificate, maxChain)...), nil, "9 certificates"},
		{"nothing", nil, nil, ErrNoCredentials.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAuthenticator(t, ca, nil, nil)
			got, err := a.Authenticate(request("", tt.shown...))
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(User{}, "Extra"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("user (-want +got):\n%s", diff)
			}
			if tt.error == "" && err != nil || tt.error != "" && (err == nil || !strings.Contains(err.Error(), tt.error)) {
				t.Errorf("error %v, want %q", err, tt.error)
			}
			if id := func() []string {
				if got == nil {
					return nil
				}
				return got.Extra[credentialID]
			}(); got != nil && (len(id) != 1 || !strings.HasPrefix(id[0], "X509SHA256=")) {
				t.Errorf("credential id %q", id)
			}
		})
	}
}

// TestCertificateExpiresOnAnOpenConnection: the certificate is verified with each
// request, not only at the handshake.
func TestCertificateExpiresOnAnOpenConnection(t *testing.T) {
	ca := apiservertest.NewAuthority(t, "kubernetes")
	b := &bundle{path: filepath.Join(t.TempDir(), "ca.crt"), log: slog.New(slog.DiscardHandler)}
	write(t, b.path, ca.PEM())
	shown := []*x509.Certificate{ca.Client("admin", nil, nil).Leaf}
	if user, err := b.user(shown, time.Now()); user == nil {
		t.Error(err)
	}
	if user, err := b.user(shown, time.Now().Add(2*time.Hour)); user != nil || err == nil {
		t.Errorf("%v, %v after it expired", user, err)
	}
}

func TestTokens(t *testing.T) {
	server := apiservertest.New()
	server.Grant("good", "system:serviceaccount:ns:app", "system:serviceaccounts")
	server.Grant("nameless", "")
	a := newAuthenticator(t, nil, server, nil)
	for _, tt := range []struct {
		token string
		want  *User
		error string
	}{
		{"good", &User{Username: "system:serviceaccount:ns:app", UID: "uid-of-system:serviceaccount:ns:app", Groups: []string{"system:serviceaccounts", Authenticated}}, ""},
		{"bad", nil, "token lookup failed"},
		{"nameless", nil, "has no user name"},
		{strings.Repeat("x", maxToken+1), nil, "exceeds 16384"},
		{"", nil, ErrNoCredentials.Error()},
	} {
		got, err := a.Authenticate(request(tt.token))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%.10q (-want +got):\n%s", tt.token, diff)
		}
		if tt.error == "" && err != nil || tt.error != "" && (err == nil || !strings.Contains(err.Error(), tt.error)) {
			t.Errorf("%.10q: error %v, want %q", tt.token, err, tt.error)
		}
	}
	if diff := cmp.Diff([]string{"good", "bad", "nameless"}, server.TokenReviews()); diff != "" {
		t.Errorf("reviewed (-want +got):\n%s", diff)
	}
}

func TestWhichCredentialsCount(t *testing.T) {
	ca, stranger, server := apiservertest.NewAuthority(t, "kubernetes"), apiservertest.NewAuthority(t, "other"), apiservertest.New()
	server.Grant("good", "app")
	good, bad := ca.Client("admin", nil, nil), stranger.Client("admin", nil, nil)
	for _, tt := range []struct {
		name      string
		request   *http.Request
		anonymous bool
		want      string // "" is nobody
		reviews   int
	}{
		{"certificate before token", request("good", good), false, "admin", 0},
		{"token after a certificate that does not hold", request("good", bad), false, "app", 1},
		{"neither holds", request("bad", bad), false, "", 1},
		{"neither holds, anonymous allowed", request("bad", bad), true, "", 1},
		{"bad token, anonymous allowed", request("bad"), true, "", 1},
		{"bad certificate, anonymous allowed", request("", bad), true, "", 0},
		{"nothing, anonymous allowed", request(""), true, Anonymous, 0},
		{"nothing", request(""), false, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(server.TokenReviews())
			a := newAuthenticator(t, ca, server, func(c *Config) { c.Anonymous = tt.anonymous })
			got, err := a.Authenticate(tt.request)
			name := ""
			if got != nil {
				name = got.Username
			}
			if name != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v; want %q", name, err, tt.want)
			}
			if n := len(server.TokenReviews()) - before; n != tt.reviews {
				t.Errorf("%d reviews, want %d", n, tt.reviews)
			}
		})
	}
	t.Run("certificate without a CA file counts as none", func(t *testing.T) {
		a := newAuthenticator(t, nil, server, func(c *Config) { c.Anonymous = true })
		if got, err := a.Authenticate(request("", bad)); got != anonymous {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("token without reviews counts as none", func(t *testing.T) {
		a := newAuthenticator(t, ca, nil, func(c *Config) { c.Anonymous = true })
		if got, err := a.Authenticate(request("bad")); got != anonymous {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestTokenIsKnownForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.New()
		server.Grant("token", "app")
		a := newAuthenticator(t, nil, server, nil)
		want := func(user bool, reviews int) {
			t.Helper()
			got, err := a.Authenticate(request("token"))
			if (got != nil) != user || len(server.TokenReviews()) != reviews {
				t.Errorf("%v, %v after %d reviews; want %v after %d", got, err, len(server.TokenReviews()), user, reviews)
			}
		}
		want(true, 1)
		server.Revoke("token")
		time.Sleep(2*time.Minute - 1)
		want(true, 1) // for as long as it was believed
		time.Sleep(time.Nanosecond)
		want(false, 2)
		server.Grant("token", "app")
		time.Sleep(10*time.Second - 1)
		want(false, 2)
		time.Sleep(time.Nanosecond)
		want(true, 3)
	})
}

func TestNoTimesKeepNothing(t *testing.T) {
	server := apiservertest.New()
	a := newAuthenticator(t, nil, server, func(c *Config) { c.CacheTTL = 0 })
	for range 3 {
		if _, err := a.Authenticate(request("bad")); err == nil {
			t.Error("a bad token is believed")
		}
	}
	if n := len(server.TokenReviews()); n != 3 {
		t.Errorf("%d reviews", n)
	}
}

func TestOneReviewForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.New()
		server.Grant("token", "app")
		server.SetFaults(apiservertest.Faults{Latency: time.Second})
		a := newAuthenticator(t, nil, server, nil)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got, err := a.Authenticate(request("token")); got == nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(server.TokenReviews()); n != 1 {
			t.Errorf("%d reviews", n)
		}
	})
}

func TestReviewThatFails(t *testing.T) {
	for name, prepare := range map[string]func(*apiservertest.Server){
		"refused connection": func(s *apiservertest.Server) { s.Fail(apiservertest.ErrAway) },
		"no answer":          func(s *apiservertest.Server) { s.SetFaults(apiservertest.Faults{Latency: time.Hour}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiservertest.New()
				server.Grant("token", "app")
				server.Grant("other", "app")
				a := newAuthenticator(t, nil, server, func(c *Config) { c.Anonymous = true })
				if got, err := a.Authenticate(request("other")); got == nil {
					t.Fatal(err)
				}
				prepare(server)
				start := time.Now()
				if got, err := a.Authenticate(request("token")); got != nil || !errors.Is(err, ErrReview) {
					t.Errorf("%v, %v", got, err)
				}
				if took := time.Since(start); took > reviewTimeout {
					t.Errorf("took %v", took)
				}
				if got, err := a.Authenticate(request("other")); got == nil {
					t.Errorf("what was known is forgotten: %v", err)
				}
				server.Fail(nil)
				if got, err := a.Authenticate(request("token")); got == nil {
					t.Errorf("a failed review was kept: %v", err)
				}
			})
		})
	}
}

// TestTokensStaySecret: neither errors nor logs contain a token, even if the API
// server's error does.
func TestTokensStaySecret(t *testing.T) {
	const secret = "eyJhbGciOi.secret"
	var logs bytes.Buffer
	answers := []func() (*authenticationv1.TokenReview, error){
		func() (*authenticationv1.TokenReview, error) {
			return &authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{Error: "bad token " + secret}}, nil
		},
		func() (*authenticationv1.TokenReview, error) { return nil, apiservertest.ErrAway },
	}
	for _, answer := range answers {
		a := newAuthenticator(t, nil, nil, func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
			c.Review = func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
				return answer()
			}
		})
		_, err := a.Authenticate(request(secret))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error %v", err)
		}
	}
	if logs.Len() == 0 || strings.Contains(logs.String(), secret) {
		t.Errorf("logs:\n%s", &logs)
	}
}

func TestReason(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "no reason given"},
		{"expired", "expired"},
		{"the token tok is bad", "no reason given"},
		{strings.Repeat("ä", maxReason), strings.Repeat("ä", maxReason/2) + "…"},
		{"x" + strings.Repeat("ä", maxReason), "x" + strings.Repeat("ä", maxReason/2-1) + "…"},
	} {
		if got := reason(tt.text, "tok"); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestSomeWayIsNeeded(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no way to authenticate is accepted")
	}
}

func TestUserInContext(t *testing.T) {
	if got := UserFrom(WithUser(t.Context(), anonymous)); got != anonymous {
		t.Errorf("%v", got)
	}
	if got := UserFrom(t.Context()); got != nil {
		t.Errorf("%v", got)
	}
}

// FuzzBearer compares bearer with an implementation that follows the API server's
// documentation.
func FuzzBearer(f *testing.F) {
	for _, header := range []string{"", "Bearer", "Bearer x", "bearer  x", "BEARER x y", " Bearer\tx", "Basic eDp5", "Bearer x.y.z "} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		want := ""
		if parts := strings.SplitN(strings.TrimSpace(header), " ", 3); len(parts) > 1 && strings.ToLower(parts[0]) == "bearer" {
			want = parts[1]
		}
		if got := bearerToken(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	})
}

func BenchmarkCertificate(b *testing.B) {
	ca := apiservertest.NewAuthority(b, "kubernetes")
	a, r := newAuthenticator(b, ca, nil, nil), request("", ca.Client("admin", []string{"system:masters"}, nil))
	for b.Loop() {
		if _, err := a.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKnownToken(b *testing.B) {
	server := apiservertest.New()
	token := strings.Repeat("x", 1100)
	server.Grant(token, "app")
	a, r := newAuthenticator(b, nil, server, nil), request(token)
	for b.Loop() {
		if _, err := a.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
