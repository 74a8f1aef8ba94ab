package statuspage

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// cookieName is the cookie of a browser that came with the token.
const cookieName = "tinylet_page"

// allowed says whether the page answers this request; if not, it has
// refused.
//
// Without a token whoever can connect may look, and only the loopback address
// is listened on. But a browser on the board also asks for the pages of
// strangers, whose names may lead here (DNS rebinding): so the name asked for
// has to be one of this host. With a token a stranger's page has no cookie.
func (p *Page) allowed(w http.ResponseWriter, r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); r.URL.Path != pathPage && site != "" && site != "same-origin" && site != "none" {
		refuse(w, http.StatusForbidden, "the status page answers no other page")
		return false
	}
	if p.config.Token == nil {
		if !isLoopback(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "the status page is at http://localhost and http://127.0.0.1 only, unless it is given a token (statusPageTokenFile)")
			return false
		}
		return true
	}
	token, err := p.config.Token()
	if err != nil {
		p.refused.Do(func() {
			p.config.Log.Warn("the status page is closed: nobody can be asked for its token", "error", err)
		})
		refuse(w, http.StatusServiceUnavailable, "the status page's token cannot be read; the agent's log tells more")
		return false
	}
	return p.knows(w, r, token)
}

// knows says whether the request has the token. One that brings it in the
// address of the page gets it as a cookie, and is sent on to an address
// without it, which is in no history and in no picture of the screen.
func (p *Page) knows(w http.ResponseWriter, r *http.Request, token string) bool {
	if given := r.URL.Query().Get("token"); given != "" && r.URL.Path == pathPage {
		if !same(given, token) {
			unknown(w)
			return false
		}
		http.SetCookie(w, &http.Cookie{
			Name: cookieName, Value: cookieOf(token), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		// A redirect would still count as the site's that led here, and the
		// cookie would not be sent.
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>tinylet</title>`))
		return false
	}
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && same(given, token) {
		return true
	}
	for _, cookie := range r.CookiesNamed(cookieName) {
		if same(cookie.Value, cookieOf(token)) {
			return true
		}
	}
	unknown(w)
	return false
}

func unknown(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="tinylet"`)
	refuse(w, http.StatusUnauthorized, "the status page wants its token: open it with ?token=TOKEN behind the address, or send the header Authorization: Bearer TOKEN")
}

// cookieOf is what a browser keeps in the token's place.
func cookieOf(token string) string {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("cookie of tinylet's status page"))
	return hex.EncodeToString(m.Sum(nil))
}

// same compares in a time that tells nothing of either.
func same(given, wanted string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(wanted))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// isLoopback says whether a Host header names this host by an address or a
// name that no DNS server answers for (RFC 6761, section 6.3).
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Zone() == "" && address.Unmap().IsLoopback()
}
