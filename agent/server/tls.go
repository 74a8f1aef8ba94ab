package server

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
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
		id, weak, ok := config.CipherSuite(name)
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
