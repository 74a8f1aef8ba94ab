package authz

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/tinylet/tinylet/agent/server/authn"
)

// Guard lets those requests through to a handler whose user is known and has
// the right to them. The handler finds the user by authn.From, and no longer
// any token. All methods may be called at once.
type Guard struct {
	authn *authn.Authenticator
	authz *Authorizer
	next  http.Handler
	log   *slog.Logger
}

// NewGuard stands in front of next. The server must ask for client
// certificates without judging them (tls.RequestClientCert), and should bound
// headers and their time.
func NewGuard(authn *authn.Authenticator, authz *Authorizer, next http.Handler, log *slog.Logger) *Guard {
	return &Guard{authn, authz, next, log}
}

// ServeHTTP answers as a kubelet does where it does not let through
// (InstallAuthFilter in pkg/kubelet/server/server.go), but for one case: a
// right that cannot be reviewed since the API server is away is 503 in place
// of 500, and says so.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The right follows from the path, so it must mean the same to whoever
	// serves it. http.ServeMux, behind which a kubelet asks for rights, sends
	// the client to the clean path too.
	switch path := r.URL.Path; {
	case len(path) > maxPath:
		refuse(w, http.StatusRequestURITooLong, fmt.Sprintf("The path is longer than %d bytes\n", maxPath))
		return
	case path != clean(path):
		query := strings.ReplaceAll(r.URL.RawQuery, "#", "%23") // which would end it
		w.Header().Set("Location", (&url.URL{Path: clean(path), RawQuery: query}).String())
		refuse(w, http.StatusTemporaryRedirect, "The path is "+clean(path)+"\n")
		return
	}
	user, err := g.authn.Authenticate(r)
	if err != nil {
		g.log.Debug("request refused: nobody is known to have sent it", "remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "error", err)
		if challenge := g.authn.Challenge(); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		refuse(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	verb, subresources := Verb(r.Method, r.URL.Path), Subresources(r.URL.Path)
	allowed, err := g.authz.Allowed(r.Context(), user, verb, subresources)
	if err == nil && allowed {
		r = r.WithContext(authn.With(r.Context(), user))
		r.Header.Del("Authorization")
		g.next.ServeHTTP(w, r)
		return
	}
	g.log.Debug("request refused: its user has no right to it", "remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path,
		"user", user.Name, "verb", verb, "subresources", subresources, "error", err)
	code, text := answerTo(user, verb, subresources, err)
	refuse(w, code, text)
}

// answerTo is what somebody is told who may not do something.
func answerTo(user *authn.User, verb string, subresources []string, err error) (code int, text string) {
	var review *ReviewError
	if !errors.As(err, &review) {
		return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", user.Name, verb, subresources)
	}
	text = fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Name, verb, review.Subresource)
	if !review.Away {
		return http.StatusInternalServerError, text
	}
	return http.StatusServiceUnavailable, text + ": the node cannot ask the API server whether this is allowed, and has no earlier decision that still holds; try again when the node has a link to its API server\n"
}

// refuse answers with a text that no browser takes for anything else and
// nobody keeps.
func refuse(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // who went away needs no answer
}
