package server

import (
	"crypto/tls"
	"net/http"
	"slices"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/server/authn"
)

// tlsConfig returns the TLS configuration, with tlsMinVersion, tlsCipherSuites and
// tlsCurvePreferences. Each connection uses a copy with the current
// client CAs. A client certificate is verified with each request. It does not promote the
// connection by itself: a cluster's CA signs many certificates, such as those of other
// nodes, that have no access to this node.
func (s *Server) tlsConfig() *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: s.config.GetCertificate,
		// Clients without a certificate use a token.
		ClientAuth: tls.RequestClientCert,
		NextProtos: []string{"http/1.1"},
	}
	kc := s.config.Kubelet
	if kc.TLSMinVersion == "VersionTLS13" {
		base.MinVersion = tls.VersionTLS13
	}
	for _, name := range kc.TLSCipherSuites {
		id, weak, _ := config.CipherSuite(name)
		if weak {
			s.config.Log.Warn("insecure TLS cipher suite configured", "suite", name, "remedy", "remove it from tlsCipherSuites")
		}
		base.CipherSuites = append(base.CipherSuites, id)
	}
	for _, curve := range kc.TLSCurvePreferences {
		base.CurvePreferences = append(base.CurvePreferences, tls.CurveID(curve))
	}
	// With TLS 1.2, HTTP/2 requires one of these suites (RFC 9113, 9.2.2), and
	// net/http does not serve at all if HTTP/2 is enabled without one.
	if base.MinVersion == tls.VersionTLS13 || base.CipherSuites == nil ||
		slices.Contains(base.CipherSuites, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) ||
		slices.Contains(base.CipherSuites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
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
