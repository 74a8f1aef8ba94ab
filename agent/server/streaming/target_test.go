package streaming

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/config"
)

func TestTarget(t *testing.T) {
	for raw, want := range map[string]target{
		"http://127.0.0.1:40123/exec/toK_n-1":         {network: "tcp", address: "127.0.0.1:40123", host: "127.0.0.1:40123", uri: "/exec/toK_n-1"},
		"http://localhost:1/attach/t":                 {network: "tcp", address: "127.0.0.1:1", host: "127.0.0.1:1", uri: "/attach/t"},
		"http://[::1]:9/portforward/t?a=b%20c":        {network: "tcp", address: "[::1]:9", host: "[::1]:9", uri: "/portforward/t?a=b%20c"},
		"http://127.8.9.10:65535/a%0d%0ab":            {network: "tcp", address: "127.8.9.10:65535", host: "127.8.9.10:65535", uri: "/a%0d%0ab"},
		"unix:/run/r.sock:/exec/t":                    {network: "unix", address: "/run/r.sock", host: "localhost", uri: "/exec/t"},
		"unix:///run/r.sock:/exec/t?x=http://1.2.3.4": {network: "unix", address: "/run/r.sock", host: "localhost", uri: "/exec/t?x=http://1.2.3.4"},
	} {
		if got, err := targetOf(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"", "/exec/t", "127.0.0.1:80/exec/t", "://", "http:", "http://", "http:///exec/t",
		"http://127.0.0.1/exec/t", "http://127.0.0.1:0/exec/t", "http://127.0.0.1:65536/exec/t", "http://127.0.0.1:80",
		"http://0.0.0.0:80/exec/t", "http://192.168.0.1:80/exec/t", "http://[::]:80/exec/t", "http://169.254.169.254:80/t",
		"http://example.com:80/exec/t", "http://localhost.example.com:80/t", "http://127.0.0.1.example.com:80/t",
		"http://127.0.0.1@example.com:80/t", "http://root@127.0.0.1:80/t", "http://[::1%25lo]:80/t", "http://2130706433:80/t",
		"https://127.0.0.1:80/exec/t", "ftp://127.0.0.1:80/t", "HTTPS://127.0.0.1:80/t",
		"http://127.0.0.1:80/a\r\nX: y", "unix:/run/r.sock", "unix:run/r.sock:/t", "unix:/run/r.sock:t", "unix:/run/r.sock:http://x/",
		"unix://host/run/r.sock:/t", "unix:/run/%2e%2e/r.sock:/t", "unix:/" + strings.Repeat("a", config.MaxSocketPath) + ":/t",
		"http://127.0.0.1:80/" + strings.Repeat("a", maxURL),
	} {
		got, err := targetOf(raw)
		if r := (*httpError)(nil); !errors.As(err, &r) || r.code != http.StatusBadGateway {
			t.Errorf("%q is accepted as %+v, or refused otherwise: %v", raw, got, err)
		}
	}
}

// FuzzTarget: the dialed address is on this host, and the request URI has no line
// breaks.
func FuzzTarget(f *testing.F) {
	for _, raw := range []string{
		"http://127.0.0.1:40123/exec/t", "http://[::ffff:127.0.0.1]:1/", "unix:/run/r.sock:/exec/t", "http://[::1%25lo]:80/t", "unix://x:/y:/z",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		to, err := targetOf(raw)
		if err != nil {
			return
		}
		switch to.network {
		case "tcp":
			addr, err := net.ResolveTCPAddr("tcp", to.address)
			if err != nil || !addr.IP.IsLoopback() || addr.Port == 0 {
				t.Errorf("%q is dialled at %q, %v", raw, to.address, err)
			}
		case "unix":
			if !strings.HasPrefix(to.address, "/") || len(to.address) > config.MaxSocketPath {
				t.Errorf("%q is dialled at %q", raw, to.address)
			}
		default:
			t.Errorf("%q is dialled over %q", raw, to.network)
		}
		if _, err := url.ParseRequestURI(to.uri); err != nil || !strings.HasPrefix(to.uri, "/") || strings.ContainsAny(to.uri+to.host, " \r\n") {
			t.Errorf("%q asks %q for %q, %v", raw, to.host, to.uri, err)
		}
	})
}
