package streaming

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Limits of the runtime's URL.
const (
	maxURL    = 4096
	maxSocket = 107 // what fits into the kernel's sockaddr_un
)

// target is where the runtime's streaming server listens, and for what.
type target struct {
	network, address string // for a dialer
	host             string // for the request
	uri              string // path and query, escaped
}

// targetOf reads the URL that a runtime has answered: http on a loopback
// address, or unix:/SOCKET:/PATH. Whatever else it names is refused. The
// streaming server asks for no credentials and the bytes are not encrypted,
// so one that listens beyond this host is a mistake in the runtime's
// configuration. Nothing is resolved: localhost is 127.0.0.1.
func targetOf(raw string) (target, error) {
	if len(raw) > maxURL {
		return target{}, misconfigured("is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return target{}, misconfigured("cannot be read") // the cause would tell the token
	}
	switch u.Scheme {
	case "http":
		return loopback(u)
	case "unix":
		return socket(raw)
	case "https":
		return target{}, misconfigured("is https: let the runtime stream without TLS, on 127.0.0.1 (in containerd enable_tls_streaming = false)")
	}
	return target{}, misconfigured("has the scheme %.20q, and neither http nor unix", u.Scheme)
}

func loopback(u *url.URL) (target, error) {
	host := u.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() || ip.Zone() != "" {
		return target{}, misconfigured("names the host %.80q, which is no loopback address: let the runtime stream on 127.0.0.1 (in containerd stream_server_address, in CRI-O stream_address)", host)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 || u.User != nil || u.Path == "" {
		return target{}, misconfigured("has no port, no path, or a user")
	}
	address := net.JoinHostPort(ip.Unmap().String(), strconv.FormatUint(port, 10))
	return target{network: "tcp", address: address, host: address, uri: u.RequestURI()}, nil
}

// socket reads unix:/SOCKET:/PATH and unix:///SOCKET:/PATH.
func socket(raw string) (target, error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(raw, "unix:"), "//")
	path, uri, found := strings.Cut(rest, ":")
	if !found || !strings.HasPrefix(path, "/") || len(path) > maxSocket || strings.ContainsRune(path, '%') {
		return target{}, misconfigured("names no socket: give unix:/SOCKET:/PATH")
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || !strings.HasPrefix(uri, "/") {
		return target{}, misconfigured("names no path behind the socket: give unix:/SOCKET:/PATH")
	}
	return target{network: "unix", address: path, host: "localhost", uri: u.RequestURI()}, nil
}

func misconfigured(format string, args ...any) error {
	return &refusal{code: http.StatusBadGateway, text: "the URL of the container runtime's streaming server " + fmt.Sprintf(format, args...)}
}
