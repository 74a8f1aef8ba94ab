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

// Config says who is believed.
type Config struct {
	// ClientCAFile has the certificates in PEM that client certificates must
	// lead to (authentication.x509.clientCAFile); "" believes no certificate.
	// It may come, change and go at any time; what cannot be used changes
	// nothing.
	ClientCAFile string
	// Review creates a TokenReview at the API server and answers what became
	// of it; nil believes no token (authentication.webhook.enabled). It must
	// end with its context, and must not retry for long: those who wait for
	// it are waiting for an answer to their request.
	Review func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	// CacheTTL is how long a token that was found good is believed without
	// asking again (authentication.webhook.cacheTTL); 0 asks each time.
	CacheTTL time.Duration
	// DeniedTTL is how long a token that was found bad is refused without
	// asking again: 0 is 10 s, or CacheTTL if that is shorter. A kubelet has
	// no such time, since the API server gives each refusal the form of an
	// error; without it, a client with an old token costs a request to the
	// API server for each of its own.
	DeniedTTL time.Duration
	// ReviewTimeout is how long a review may take; 0 is 10 s.
	ReviewTimeout time.Duration
	// Anonymous has who shows no credentials be system:anonymous
	// (authentication.anonymous.enabled).
	Anonymous bool
	Log       *slog.Logger
}

const (
	// defaultDenied is short, since the API server also answers so while it
	// cannot read what it needs for a judgement.
	defaultDenied = 10 * time.Second
	// defaultTimeout is that of DelegatingAuthenticationOptions
	// (pkg/server/options of k8s.io/apiserver).
	defaultTimeout = 10 * time.Second
	// knownTokens is how many good tokens, and how many bad ones, are known
	// at a time. A node is called by few.
	knownTokens = 128
	// reviewsAtOnce bounds what strangers can have sent over the uplink.
	reviewsAtOnce = 4
)

// ErrNoCredentials is what a request has that shows none, where the anonymous
// are not allowed.
var ErrNoCredentials = errors.New("no client certificate and no bearer token, and anonymous requests are not allowed")

// Authenticator finds out who calls. All methods may be called at once.
type Authenticator struct {
	anonymous bool
	bundle    *bundle // nil believes no certificate
	tokens    *tokens // nil believes no token
}

// New checks the configuration; nothing is read and nothing is started.
func New(c Config) (*Authenticator, error) {
	if c.ClientCAFile == "" && c.Review == nil && !c.Anonymous {
		return nil, errors.New("authenticate clients: no way is configured: set authentication.x509.clientCAFile, authentication.webhook.enabled or authentication.anonymous.enabled")
	}
	a := &Authenticator{anonymous: c.Anonymous}
	if c.ClientCAFile != "" {
		path, err := filepath.Abs(c.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("client CA file %s: %w", c.ClientCAFile, err)
		}
		a.bundle = &bundle{path: path, log: c.Log}
	}
	if c.Review != nil {
		if c.ReviewTimeout == 0 {
			c.ReviewTimeout = defaultTimeout
		}
		if c.DeniedTTL == 0 {
			c.DeniedTTL = min(defaultDenied, c.CacheTTL)
		}
		answers, err := cache.New[verdict](cache.Config{
			Yes: c.CacheTTL, No: c.DeniedTTL, Size: knownTokens, Timeout: c.ReviewTimeout, AtOnce: reviewsAtOnce,
		})
		if err != nil {
			return nil, fmt.Errorf("authenticate by token: %w", err)
		}
		a.tokens = &tokens{
			review: c.Review, answers: answers, hasher: cache.NewHasher(),
			outage: apiclient.NewOutage(c.Log, "bearer tokens cannot be reviewed: only those that were found good lately are believed",
				"bearer tokens are reviewed again"),
		}
	}
	return a, nil
}

// Run follows the client CA file until ctx ends. Without it, or before it, a
// bundle that was read once stays as it is.
func (a *Authenticator) Run(ctx context.Context) {
	if a.bundle == nil {
		<-ctx.Done()
		return
	}
	a.bundle.follow(ctx)
}

// Authenticate finds out who a request comes from. It blocks while the API
// server is asked, until r's context ends or the review's time is over. Every
// error means that nobody is known to have sent the request:
// ErrNoCredentials, ErrReview, or what is wrong with what was shown.
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
		if token := bearer(r.Header.Get("Authorization")); token != "" {
			user, err := a.tokens.user(r.Context(), token)
			if user != nil {
				return user, nil
			}
			wrong = append(wrong, err)
		}
	}
	// Who shows something wrong is not let in as anonymous.
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if a.anonymous {
		return nobody, nil
	}
	return nil, ErrNoCredentials
}

// ClientCAs are the certificates that client certificates must lead to, for
// tls.Config.ClientCAs, by which clients choose the certificate that they
// show; nil if there are none. A server asks for certificates by
// tls.RequestClientCert, so that others can show a token, and takes ClientCAs
// anew for each connection (GetConfigForClient).
func (a *Authenticator) ClientCAs() *x509.CertPool {
	if a.bundle == nil {
		return nil
	}
	return a.bundle.pool.Load()
}

// Challenge is what WWW-Authenticate tells who was not authenticated; "" if
// no header would help, as with client certificates (RFC 9110, 11.6.1).
func (a *Authenticator) Challenge() string {
	if a.tokens == nil {
		return ""
	}
	return `Bearer realm="kubelet"`
}
