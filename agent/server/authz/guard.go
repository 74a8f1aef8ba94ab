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

// Guard passes authenticated and authorized requests to Next, which gets the user with
// authn.UserFrom; the Authorization header is removed. Its methods may be called
// concurrently. The server must request client certificates without verifying them
// (tls.RequestClientCert), and should limit the size of headers and the time to read them.
type Guard struct {
	Authn *authn.Authenticator
	Authz *Authorizer
	Next  http.Handler
	Log   *slog.Logger
}

// ServeHTTP rejects requests like the kubelet (InstallAuthFilter in
// pkg/kubelet/server/server.go), with one difference: if access cannot be reviewed
// because the API server is unavailable, it sends 503 with an explanation instead of
// 500.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Authorization depends on the path, so the handler must see the same path.
	// http.ServeMux, behind which the kubelet authorizes, redirects to the clean
	// path too.
	switch path := r.URL.Path; {
	case len(path) > maxPath:
		refuse(w, http.StatusRequestURITooLong, fmt.Sprintf("The path is longer than %d bytes\n", maxPath))
		return
	case path != clean(path):
		query := strings.ReplaceAll(r.URL.RawQuery, "#", "%23") // "#" would end the query
		w.Header().Set("Location", (&url.URL{Path: clean(path), RawQuery: query}).String())
		refuse(w, http.StatusTemporaryRedirect, "Redirecting to "+clean(path)+"\n")
		return
	}
	user, err := g.Authn.Authenticate(r)
	if err != nil {
		g.Log.Debug("rejected unauthenticated request", "remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "error", err)
		if challenge := g.Authn.Challenge(); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		refuse(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	verb, subresources := Verb(r.Method, r.URL.Path), Subresources(r.URL.Path)
	allowed, err := g.Authz.Allowed(r.Context(), user, verb, subresources)
	if err == nil && allowed {
		r = r.WithContext(authn.WithUser(r.Context(), user))
		r.Header.Del("Authorization")
		g.Next.ServeHTTP(w, r)
		return
	}
	g.Log.Debug("rejected unauthorized request", "remote", r.RemoteAddr, "method", r.Method, "path", r.URL.Path,
		"user", user.Username, "verb", verb, "subresources", subresources, "error", err)
	code, text := answerTo(user, verb, subresources, err)
	refuse(w, code, text)
}

// answerTo returns the status code and text for an unauthorized request. err is the
// error of Allowed, nil for a negative decision.
func answerTo(user *authn.User, verb string, subresources []string, err error) (code int, text string) {
	var review *ReviewError
	if !errors.As(err, &review) {
		return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", user.Username, verb, subresources)
	}
	text = fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Username, verb, review.Subresource)
	if !review.Unavailable {
		return http.StatusInternalServerError, text
	}
	return http.StatusServiceUnavailable, text + ": the node cannot get a SubjectAccessReview from the API server and has no valid cached decision; try again when the node is connected to the API server\n"
}

// refuse sends a plain text, which browsers must not interpret as another type, and
// which must not be cached.
func refuse(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // fails only if the client has disconnected
}
