package streaming

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/tinylet/tinylet/agent/config"
)

// maxURL limits the runtime's URL.
const maxURL = 4096

// target is the parsed URL of the runtime's streaming server.
type target struct {
	network, address string // for a dialer
	host             string // for the request
	uri              string // path and query, escaped
}

// targetOf parses the URL that the runtime has returned: http on a loopback address, or
// unix:/SOCKET:/PATH. It rejects other URLs. The streaming server requires no
// credentials and the connection is not encrypted, so a server that listens on other
// addresses is a misconfiguration of the runtime. targetOf resolves no names:
// localhost means 127.0.0.1.
func targetOf(raw string) (target, error) {
	if len(raw) > maxURL {
		return target{}, misconfigured("exceeds %d bytes", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return target{}, misconfigured("cannot be parsed") // the cause would include the token
	}
	switch u.Scheme {
	case "http":
		return loopback(u)
	case "unix":
		return socket(raw)
	case "https":
		return target{}, misconfigured("has the scheme https: configure the runtime to stream without TLS, on 127.0.0.1 (in containerd enable_tls_streaming = false)")
	}
	return target{}, misconfigured("has the scheme %.20q: must be http or unix", u.Scheme)
}

func loopback(u *url.URL) (target, error) {
	host := u.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() || ip.Zone() != "" {
		return target{}, misconfigured("has the host %.80q, which is not a loopback address: configure the runtime to stream on 127.0.0.1 (in containerd stream_server_address, in CRI-O stream_address)", host)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 || u.User != nil || u.Path == "" {
		return target{}, misconfigured("must have a port and a path, and no user")
	}
	address := net.JoinHostPort(ip.Unmap().String(), strconv.FormatUint(port, 10))
	return target{network: "tcp", address: address, host: address, uri: u.RequestURI()}, nil
}

// socket parses unix:/SOCKET:/PATH and unix:///SOCKET:/PATH.
func socket(raw string) (target, error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(raw, "unix:"), "//")
	path, uri, found := strings.Cut(rest, ":")
	if !found || !strings.HasPrefix(path, "/") || len(path) > config.MaxSocketPath || strings.ContainsRune(path, '%') {
		return target{}, misconfigured("has no valid socket: must be unix:/SOCKET:/PATH")
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || !strings.HasPrefix(uri, "/") {
		return target{}, misconfigured("has no valid path after the socket: must be unix:/SOCKET:/PATH")
	}
	return target{network: "unix", address: path, host: "localhost", uri: u.RequestURI()}, nil
}

func misconfigured(format string, args ...any) error {
	return &httpError{code: http.StatusBadGateway, text: "the URL of the container runtime's streaming server " + fmt.Sprintf(format, args...)}
}
