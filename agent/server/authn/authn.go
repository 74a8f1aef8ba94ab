package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/server/authn/cache"
)

// Config configures an Authenticator.
type Config struct {
	// ClientCAFile is the PEM bundle of the client CAs
	// (authentication.x509.clientCAFile); with "", client certificates are
	// ignored. It may be created, changed and removed at any time. An invalid or
	// missing file does not replace the loaded bundle.
	ClientCAFile string
	// Review creates a TokenReview on the API server and returns the result
	// (authentication.webhook.enabled); with nil, tokens are ignored. It must
	// return when its context ends, and must not retry for long, because requests
	// block until it returns.
	Review func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	// CacheTTL is how long an authenticated token is cached
	// (authentication.webhook.cacheTTL); 0 disables the cache.
	CacheTTL time.Duration
	// Anonymous maps requests without credentials to system:anonymous
	// (authentication.anonymous.enabled).
	Anonymous bool
	Log       *slog.Logger
}

const (
	// maxDeniedTTL is how long a rejected token is cached, unless CacheTTL is shorter.
	// It is short, because the API server also rejects a token while it cannot read
	// the data that the review requires. The kubelet does not cache rejected tokens,
	// because the API server returns each rejection as an error. Without this cache,
	// each request of a client with an expired token would cause a request to the API
	// server.
	maxDeniedTTL = 10 * time.Second
	// reviewTimeout limits one review. It is the timeout of DelegatingAuthenticationOptions
	// (pkg/server/options of k8s.io/apiserver).
	reviewTimeout = 10 * time.Second
	// maxCachedTokens limits the cached authenticated tokens, and the cached rejected
	// ones. A node has few clients.
	maxCachedTokens = 128
	// maxConcurrentReviews limits the uplink traffic that unauthenticated clients can
	// cause.
	maxConcurrentReviews = 4
)

// ErrNoCredentials means that a request has no credentials and anonymous requests
// are disabled.
var ErrNoCredentials = errors.New("no client certificate and no bearer token, and anonymous requests are not allowed")

// Authenticator authenticates requests. Its methods may be called concurrently.
type Authenticator struct {
	anonymous bool
	bundle    *bundle // nil ignores client certificates
	tokens    *tokens // nil ignores tokens
}

// New validates the configuration. It reads and starts nothing.
func New(c Config) (*Authenticator, error) {
	if c.ClientCAFile == "" && c.Review == nil && !c.Anonymous {
		return nil, errors.New("authenticate clients: no method configured: set authentication.x509.clientCAFile, authentication.webhook.enabled or authentication.anonymous.enabled")
	}
	a := &Authenticator{anonymous: c.Anonymous}
	if c.ClientCAFile != "" {
		path, err := filepath.Abs(c.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("resolve client CA file %s: %w", c.ClientCAFile, err)
		}
		a.bundle = &bundle{path: path, log: c.Log}
	}
	if c.Review != nil {
		answers := cache.New[reviewResult](cache.Config{
			PositiveTTL: c.CacheTTL, NegativeTTL: min(maxDeniedTTL, c.CacheTTL), Size: maxCachedTokens, Timeout: reviewTimeout, Concurrency: maxConcurrentReviews,
		})
		a.tokens = &tokens{
			review: c.Review, answers: answers, hasher: cache.NewHasher(),
			outage: apiclient.NewOutage(c.Log, "cannot review bearer tokens, using cached results",
				"reviewing bearer tokens again"),
		}
	}
	return a, nil
}

// Run watches the client CA file until ctx ends. While Run does not run, a loaded
// bundle does not change.
func (a *Authenticator) Run(ctx context.Context) {
	if a.bundle == nil {
		<-ctx.Done()
		return
	}
	a.bundle.follow(ctx)
}

// Authenticate returns the user of a request. It blocks while a token is reviewed, for at
// most 10 s. If r's context ends, it returns only if it waits for the review of another
// request (see cache.Cache.Get and cache.WithBase). On an error the request is
// unauthenticated: the error is ErrNoCredentials, ErrReview, or describes the invalid
// credentials.
func (a *Authenticator) Authenticate(r *http.Request) (*User, error) {
	var wrong []error
	if a.bundle != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		user, err := a.bundle.user(r.TLS.PeerCertificates, time.Now())
		if user != nil {
			return user, nil
		}
		wrong = append(wrong, err)
	}
	if a.tokens != nil {
		if token := bearerToken(r.Header.Get("Authorization")); token != "" {
			user, err := a.tokens.user(r.Context(), token)
			if user != nil {
				return user, nil
			}
			wrong = append(wrong, err)
		}
	}
	// A request with invalid credentials is not anonymous.
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if a.anonymous {
		return anonymous, nil
	}
	return nil, ErrNoCredentials
}

// ClientCAs returns the client CAs for tls.Config.ClientCAs, by which clients choose
// their certificate; nil if there are none. The server must use
// tls.RequestClientCert, so that clients without a certificate can use a token, and
// must call ClientCAs for each connection (GetConfigForClient).
func (a *Authenticator) ClientCAs() *x509.CertPool {
	if a.bundle == nil {
		return nil
	}
	return a.bundle.pool.Load()
}

// Challenge returns the WWW-Authenticate header (RFC 9110, 11.6.1) for unauthenticated
// requests; "" if tokens are ignored, because client certificates have no challenge.
func (a *Authenticator) Challenge() string {
	if a.tokens == nil {
		return ""
	}
	return `Bearer realm="kubelet"`
}
