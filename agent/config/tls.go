package config

import (
	"crypto/tls"
	"slices"
)

// oldCipherSuites are names of cipher suites that Go no longer uses
// (ciphersuites_flag.go of component-base).
var oldCipherSuites = map[string]uint16{
	"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
}

// CipherSuite returns the ID of the cipher suite with a name of tlsCipherSuites, and whether
// it is insecure.
func CipherSuite(name string) (id uint16, weak, ok bool) {
	if id, ok := oldCipherSuites[name]; ok {
		return id, false, true
	}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		if s.Name == name {
			return s.ID, s.Insecure, true
		}
	}
	return 0, false, false
}
