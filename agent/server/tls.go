package server

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tinylet/tinylet/agent/server/authn"
)

// settings are what the configuration says of TLS.
type settings struct {
	least    uint16
	suites   []uint16 // nil is Go's own choice
	curves   []tls.CurveID
	insecure []string // names of weak ones among suites
	http2    bool
}

// oldNames are names of suites that Go has given up (ciphersuites_flag.go of
// component-base).
var oldNames = map[string]uint16{
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// tlsSettings reads tlsMinVersion, tlsCipherSuites and tlsCurvePreferences.
func tlsSettings(kc *kubelet.KubeletConfiguration) (settings, error) {
	out := settings{least: tls.VersionTLS12}
	switch kc.TLSMinVersion {
	case "", "VersionTLS10", "VersionTLS11", "VersionTLS12":
	case "VersionTLS13":
		out.least = tls.VersionTLS13
	default:
		return out, fmt.Errorf("tlsMinVersion: %q is none of VersionTLS12, VersionTLS13", kc.TLSMinVersion)
	}
	for _, name := range kc.TLSCipherSuites {
		id, weak, ok := suite(name)
		if !ok {
			return out, fmt.Errorf("tlsCipherSuites: %q is no cipher suite: names are those of Go's crypto/tls", name)
		}
		if weak {
			out.insecure = append(out.insecure, name)
		}
		out.suites = append(out.suites, id)
	}
	for _, curve := range kc.TLSCurvePreferences {
		if curve < 1 || curve > 0xffff {
			return out, fmt.Errorf("tlsCurvePreferences: %d is no CurveID: numbers are those of Go's crypto/tls", curve)
		}
		out.curves = append(out.curves, tls.CurveID(curve))
	}
	// HTTP/2 must have one of these with TLS 1.2 (RFC 9113, 9.2.2), and
	// net/http does not serve at all where it is asked for both.
	out.http2 = out.least == tls.VersionTLS13 || out.suites == nil ||
		slices.Contains(out.suites, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) ||
		slices.Contains(out.suites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
	return out, nil
}

// suite is the cipher suite of a name.
func suite(name string) (id uint16, weak, ok bool) {
	if id, ok := oldNames[name]; ok {
		return id, false, true
	}
	for _, s := range tls.CipherSuites() {
		if s.Name == name {
			return s.ID, false, true
		}
	}
	for _, s := range tls.InsecureCipherSuites() {
		if s.Name == name {
			return s.ID, true, true
		}
	}
	return 0, false, false
}

// handshakes is the TLS configuration. Each connection has its own copy with
// the client CAs of now. A certificate is judged with each request, and gives no
// place: a cluster's CA signs many, of other nodes among them, that have no
// right to anything here.
func (s *Server) handshakes(is settings) *tls.Config {
	base := &tls.Config{
		MinVersion: is.least, CipherSuites: is.suites, CurvePreferences: is.curves,
		GetCertificate: s.config.GetCertificate,
		// Others show a token.
		ClientAuth: tls.RequestClientCert,
		NextProtos: []string{"http/1.1"},
	}
	if is.http2 {
		base.NextProtos = []string{"h2", "http/1.1"}
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		own := base.Clone()
		own.ClientCAs = s.config.Authn.ClientCAs()
		return own, nil
	}
	return base
}

// certified reports whether a connection has shown a certificate that holds.
func (s *Server) certified(state *tls.ConnectionState) bool {
	if state == nil || len(state.PeerCertificates) == 0 {
		return false
	}
	user, err := s.config.Authn.Authenticate(&http.Request{TLS: state})
	return err == nil && user.Name != authn.Anonymous
}
