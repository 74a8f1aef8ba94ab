package server

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/server/authn"
)

// settings are the TLS settings of the configuration.
type settings struct {
	least    uint16   // minimum version
	suites   []uint16 // nil means Go's defaults
	curves   []tls.CurveID
	insecure []string // names of the insecure suites
	http2    bool
}

// oldNames are suite names that Go no longer uses (ciphersuites_flag.go of
// component-base).
var oldNames = map[string]uint16{
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// tlsSettings parses tlsMinVersion, tlsCipherSuites and tlsCurvePreferences.
func tlsSettings(kc *kubelet.KubeletConfiguration) (settings, error) {
	out := settings{least: tls.VersionTLS12}
	switch kc.TLSMinVersion {
	case "", "VersionTLS10", "VersionTLS11", "VersionTLS12":
	case "VersionTLS13":
		out.least = tls.VersionTLS13
	default:
		return out, fmt.Errorf("invalid tlsMinVersion %q: must be VersionTLS12 or VersionTLS13", kc.TLSMinVersion)
	}
	for _, name := range kc.TLSCipherSuites {
		id, weak, ok := suite(name)
		if !ok {
			return out, fmt.Errorf("invalid tlsCipherSuites: %q is not a cipher suite of Go's crypto/tls", name)
		}
		if weak {
			out.insecure = append(out.insecure, name)
		}
		out.suites = append(out.suites, id)
	}
	for _, curve := range kc.TLSCurvePreferences {
		if curve < 1 || curve > 0xffff {
			return out, fmt.Errorf("invalid tlsCurvePreferences: %d is not a CurveID of Go's crypto/tls", curve)
		}
		out.curves = append(out.curves, tls.CurveID(curve))
	}
	// With TLS 1.2, HTTP/2 requires one of these suites (RFC 9113, 9.2.2), and
	// net/http does not serve at all if HTTP/2 is enabled without one.
	out.http2 = out.least == tls.VersionTLS13 || out.suites == nil ||
		slices.Contains(out.suites, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) ||
		slices.Contains(out.suites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
	return out, nil
}

// suite returns the ID of the cipher suite with a name, and whether it is insecure.
func suite(name string) (id uint16, weak, ok bool) {
	if id, ok := oldNames[name]; ok {
		return id, false, true
	}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if s.Name == name {
			return s.ID, s.Insecure, true
		}
	}
	return 0, false, false
}

// tlsConfig returns the TLS configuration. Each connection uses a copy with the current
// client CAs. A client certificate is verified with each request. It does not promote the
// connection by itself: a cluster's CA signs many certificates, such as those of other
// nodes, that have no access to this node.
func (s *Server) tlsConfig(is settings) *tls.Config {
	base := &tls.Config{
		MinVersion: is.least, CipherSuites: is.suites, CurvePreferences: is.curves,
		GetCertificate: s.config.GetCertificate,
		// Clients without a certificate use a token.
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

// hasValidCertificate reports whether the client of a connection has shown a valid certificate.
func (s *Server) hasValidCertificate(state *tls.ConnectionState) bool {
	if state == nil || len(state.PeerCertificates) == 0 {
		return false
	}
	user, err := s.config.Authn.Authenticate(&http.Request{TLS: state})
	return err == nil && user.Username != authn.Anonymous
}
