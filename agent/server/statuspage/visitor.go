package statuspage

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tinylet/tinylet/agent/server/local"
)

// cookieName is the cookie of a browser that has presented the token.
const cookieName = "tinylet_page"

// authorize reports whether the request may access the page. If not, it has
// written the response.
//
// Without a token every client that can connect has access, and the listener must be
// bound to a loopback address. A browser on the node may load pages of other sites whose
// names resolve to this address (DNS rebinding), so the requested host must be localhost
// or a loopback address. With a token, a page of another site has no cookie.
func (p *Page) authorize(w http.ResponseWriter, r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); r.URL.Path != pathPage && site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "cross-site requests to the status page are not allowed", http.StatusForbidden)
		return false
	}
	if p.config.Token == nil {
		if !isLoopback(r.Host) {
			http.Error(w, "the status page is served only at http://localhost and http://127.0.0.1, unless a token is configured (statusPageTokenFile)", http.StatusMisdirectedRequest)
			return false
		}
		return true
	}
	token, err := p.config.Token()
	if err != nil {
		p.tokenErrorOnce.Do(func() {
			p.config.Log.Warn("cannot read status page token, deny access", "error", err)
		})
		http.Error(w, "cannot read the status page token; see the agent's log", http.StatusServiceUnavailable)
		return false
	}
	return p.authenticate(w, r, token)
}

// authenticate reports whether the request has the token. If not, it has written the
// response. A request with the token in the page's URL gets a cookie and is
// redirected to a URL without the token, so that the token does not remain in
// the browser's history or in screenshots.
func (p *Page) authenticate(w http.ResponseWriter, r *http.Request, token string) bool {
	if given := r.URL.Query().Get("token"); given != "" && r.URL.Path == pathPage {
		if !equalSecrets(given, token) {
			unauthorized(w)
			return false
		}
		http.SetCookie(w, &http.Cookie{
			Name: cookieName, Value: cookieOf(token), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		// After an HTTP redirect the request would still count as initiated by
		// the linking site, and the browser would not send the cookie.
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>tinylet</title>`))
		return false
	}
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && equalSecrets(given, token) {
		return true
	}
	for _, cookie := range r.CookiesNamed(cookieName) {
		if equalSecrets(cookie.Value, cookieOf(token)) {
			return true
		}
	}
	unauthorized(w)
	return false
}

// unauthorized responds to a request without a valid token.
func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="tinylet"`)
	http.Error(w, "the status page requires its token: append ?token=TOKEN to the address, or send the header Authorization: Bearer TOKEN", http.StatusUnauthorized)
}

// cookieOf returns the value of the cookie for a token, which does not reveal
// the token.
func cookieOf(token string) string {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("cookie of tinylet's status page"))
	return hex.EncodeToString(m.Sum(nil))
}

// equalSecrets compares two secrets in constant time.
func equalSecrets(given, expected string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(expected))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// isLoopback reports whether a Host header is a loopback address or localhost,
// which DNS servers do not resolve (RFC 6761, section 6.3).
func isLoopback(header string) bool {
	host := local.Host(header)
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Zone() == "" && address.Unmap().IsLoopback()
}
