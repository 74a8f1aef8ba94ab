package server

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
)

func TestTLSSettings(t *testing.T) {
	const (
		ecdsa = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
		rsa   = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
		big   = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
		weak  = "TLS_RSA_WITH_AES_128_CBC_SHA"
	)
	type settings struct {
		Least  uint16
		Suites []uint16
		Curves []tls.CurveID
		HTTP2  bool
	}
	for name, tt := range map[string]struct {
		least    string
		suites   []string
		curves   []int32
		want     settings
		insecure string
	}{
		"nothing set":      {want: settings{Least: tls.VersionTLS12, HTTP2: true}},
		"1.0 is raised":    {least: "VersionTLS10", want: settings{Least: tls.VersionTLS12, HTTP2: true}},
		"1.2":              {least: "VersionTLS12", want: settings{Least: tls.VersionTLS12, HTTP2: true}},
		"1.3":              {least: "VersionTLS13", want: settings{Least: tls.VersionTLS13, HTTP2: true}},
		"HTTP/2's suite":   {suites: []string{ecdsa}, want: settings{Least: tls.VersionTLS12, Suites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, HTTP2: true}},
		"HTTP/2's other":   {suites: []string{big, rsa}, want: settings{Least: tls.VersionTLS12, Suites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, HTTP2: true}},
		"none of HTTP/2's": {suites: []string{big}, want: settings{Least: tls.VersionTLS12, Suites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}}},
		"1.3 has its own":  {least: "VersionTLS13", suites: []string{big}, want: settings{Least: tls.VersionTLS13, Suites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}, HTTP2: true}},
		"name of old":      {suites: []string{"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", rsa}, want: settings{Least: tls.VersionTLS12, Suites: []uint16{tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, HTTP2: true}},
		"weak":             {suites: []string{weak, rsa}, insecure: weak, want: settings{Least: tls.VersionTLS12, Suites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, HTTP2: true}},
		"curves":           {curves: []int32{29, 23}, want: settings{Least: tls.VersionTLS12, Curves: []tls.CurveID{tls.X25519, tls.CurveP256}, HTTP2: true}},
	} {
		b := newBoard(t)
		k := b.config.Kubelet
		k.TLSMinVersion, k.TLSCipherSuites, k.TLSCurvePreferences = tt.least, tt.suites, tt.curves
		var log strings.Builder
		b.config.Log = slog.New(slog.NewTextHandler(&log, nil))
		c := b.build().tls
		got := settings{c.MinVersion, c.CipherSuites, c.CurvePreferences, c.NextProtos[0] == "h2"}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if strings.Contains(log.String(), "insecure TLS cipher suite") != (tt.insecure != "") || !strings.Contains(log.String(), tt.insecure) {
			t.Errorf("%s: logged %q", name, log.String())
		}
	}
}

// TestHandshakes checks the negotiated TLS parameters.
func TestHandshakes(t *testing.T) {
	old := func(least uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, least }
	}
	for name, tt := range map[string]struct {
		set     func(*kubelet.KubeletConfiguration)
		client  func(*tls.Config)
		version uint16 // 0 is refused
		next    string
	}{
		"new client":                {version: tls.VersionTLS13, next: "h2"},
		"client of 1.2":             {client: old(tls.VersionTLS12), version: tls.VersionTLS12, next: "h2"},
		"client of 1.1":             {client: old(tls.VersionTLS11)},
		"client of 1.2, 1.3 wanted": {set: func(kc *kubelet.KubeletConfiguration) { kc.TLSMinVersion = "VersionTLS13" }, client: old(tls.VersionTLS12)},
		"suites without HTTP/2": {set: func(kc *kubelet.KubeletConfiguration) {
			kc.TLSCipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}
		}, client: old(tls.VersionTLS12), version: tls.VersionTLS12, next: "http/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			if tt.set != nil {
				tt.set(b.config.Kubelet)
			}
			b.start()
			config := b.tls(b.adminCertificate())
			config.NextProtos = []string{"h2", "http/1.1"}
			if tt.client != nil {
				tt.client(config)
			}
			c, err := tls.Dial("tcp", b.address, config)
			if err != nil {
				if tt.version != 0 {
					t.Error(err)
				}
				return
			}
			defer c.Close()
			if got := c.ConnectionState(); got.Version != tt.version || got.NegotiatedProtocol != tt.next {
				t.Errorf("%s, %q", tls.VersionName(got.Version), got.NegotiatedProtocol)
			}
		})
	}
}

// TestRotation: the next handshake uses the new certificate, and open connections
// stay open.
func TestRotation(t *testing.T) {
	for _, protocol := range protocols {
		b := newBoard(t)
		b.start()
		shown := func(c *client) string {
			response, err := b.send(t.Context(), c, "GET", "/healthz", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := b.read(response); got.code != http.StatusOK {
				t.Fatal(got.code)
			}
			return response.TLS.PeerCertificates[0].SerialNumber.String()
		}
		stays := b.over(protocol, b.adminCertificate())
		first := shown(stays)
		next := b.ca.Server()
		b.serving.Store(&next)
		if got := shown(stays); got != first {
			t.Error("the connection was not kept")
		}
		if got := shown(b.over(protocol, b.adminCertificate())); got != next.Leaf.SerialNumber.String() {
			t.Error("the new certificate is not shown")
		}
	}
}

// TestNoCertificateYet: handshakes fail until there is a certificate, and the server
// keeps running.
func TestNoCertificateYet(t *testing.T) {
	b := newBoard(t)
	have := false
	b.config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !have {
			return nil, errors.New("no serving certificate available for the kubelet")
		}
		return b.serving.Load(), nil
	}
	b.start()
	if response, err := b.send(t.Context(), b.admin(), "GET", "/healthz", nil, nil); err == nil {
		response.Body.Close()
		t.Error("answered without a certificate")
	}
	have = true
	if got := b.ask(b.admin(), "GET", "/healthz"); got.code != http.StatusOK {
		t.Error(got.code)
	}
}

// TestCertified: only a valid certificate gives a connection more concurrent requests.
func TestCertified(t *testing.T) {
	b := newBoard(t)
	s := b.build()
	stranger := apiservertest.NewAuthority(t, "kubernetes")
	for name, tt := range map[string]struct {
		shown []tls.Certificate
		want  bool
	}{
		"nothing":                {nil, false},
		"admin":                  {[]tls.Certificate{b.adminCertificate()}, true},
		"who has no rights":      {[]tls.Certificate{b.ca.Client("app", nil, nil)}, true},
		"nobody":                 {[]tls.Certificate{b.ca.Client("", nil, nil)}, false},
		"anonymous by name":      {[]tls.Certificate{b.ca.Client("system:anonymous", nil, nil)}, false},
		"of another CA":          {[]tls.Certificate{stranger.Client("kubernetes-admin", []string{"system:masters"}, nil)}, false},
		"a server's certificate": {[]tls.Certificate{b.ca.Server()}, false},
	} {
		state := new(tls.ConnectionState)
		for _, c := range tt.shown {
			state.PeerCertificates = append(state.PeerCertificates, c.Leaf)
		}
		if got := s.hasValidCertificate(state); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if s.hasValidCertificate(nil) {
		t.Error("a connection without TLS")
	}
}
