package streaming

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The protocols of streaming servers.
const (
	protocolSPDY      = "SPDY/3.1"
	protocolWebSocket = "websocket"
)

// Headers of an upgrade that are forwarded. Other headers are not: those of the client
// include its credentials. The keys of the maps are upgrade.webSocket.
var (
	askedWith = map[bool][]string{
		false: {"X-Stream-Protocol-Version"},
		true:  {"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions"},
	}
	grantedWith = map[bool][]string{
		false: {"X-Stream-Protocol-Version"},
		true:  {"Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions"},
	}
	refusedWith = []string{"Content-Type", "Retry-After", "Sec-Websocket-Version", "X-Accepted-Stream-Protocol-Versions"}
)

// bearerPrefix is the prefix of a bearer token among the subprotocols of a WebSocket:
// browsers cannot set headers, so API servers accept a token there
// (k8s.io/apiserver/pkg/authentication/request/websocket).
const bearerPrefix = "base64url.bearer.authorization.k8s.io."

// upgrade is a client's upgrade request.
type upgrade struct {
	webSocket bool
	header    http.Header // for the runtime
}

func (u *upgrade) protocol() string {
	if u.webSocket {
		return protocolWebSocket
	}
	return protocolSPDY
}

func upgradeOf(r *http.Request) (*upgrade, error) {
	protocols := r.Header.Values("Upgrade")
	if r.ProtoMajor != 1 || r.ProtoMinor != 1 || len(protocols) != 1 || !httpguts.HeaderValuesContainsToken(r.Header.Values("Connection"), "upgrade") {
		return nil, errNoUpgrade
	}
	u := &upgrade{webSocket: strings.EqualFold(protocols[0], protocolWebSocket)}
	if !u.webSocket && !strings.EqualFold(protocols[0], protocolSPDY) {
		return nil, errNoUpgrade
	}
	if r.ContentLength != 0 {
		// A body could not be distinguished from the data after the upgrade.
		// Without Connection: close, the HTTP server would read the body before it
		// responds.
		return nil, &httpError{code: http.StatusBadRequest, header: http.Header{"Connection": {"close"}}, text: "upgrade request must not have a body"}
	}
	u.header = pick(r.Header, askedWith[u.webSocket])
	withoutToken(u.header)
	u.header["Connection"] = []string{"Upgrade"}
	u.header["Upgrade"] = []string{u.protocol()}
	return u, nil
}

var errNoUpgrade = &httpError{
	code:   http.StatusUpgradeRequired,
	header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocolSPDY + ", " + protocolWebSocket}},
	text:   "this path requires HTTP/1.1 with an upgrade to SPDY/3.1 or WebSocket",
}

// granted returns the headers of the runtime's response for the client. It reports
// false if the response is not the requested upgrade.
func (u *upgrade) granted(header http.Header) (http.Header, bool) {
	given := header.Values("Upgrade")
	if len(given) != 1 || !strings.EqualFold(given[0], u.protocol()) || !httpguts.HeaderValuesContainsToken(header.Values("Connection"), "upgrade") {
		return nil, false
	}
	out := pick(header, grantedWith[u.webSocket])
	out["Connection"] = []string{"Upgrade"}
	out["Upgrade"] = given
	return out, true
}

func pick(from http.Header, names []string) http.Header {
	out := make(http.Header, len(names)+2)
	for _, name := range names {
		if values := from[name]; len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	return out
}

// withoutToken removes bearer tokens from the subprotocols.
func withoutToken(header http.Header) {
	const name = "Sec-Websocket-Protocol"
	lists, kept := header[name], []string(nil)
	for _, list := range lists {
		for word := range strings.SplitSeq(list, ",") {
			word = strings.TrimSpace(word)
			if word != "" && !strings.HasPrefix(strings.ToLower(word), bearerPrefix) {
				kept = append(kept, word)
			}
		}
	}
	delete(header, name)
	if len(kept) > 0 {
		header[name] = []string{strings.Join(kept, ", ")}
	}
}
