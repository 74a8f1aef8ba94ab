package identity

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"
)

// selfSignedLife is the validity of a self-signed certificate (client-go's
// util/cert).
const selfSignedLife = 365 * 24 * time.Hour

// newSelfSigned creates a self-signed certificate for the node's name.
func newSelfSigned(node string, now time.Time) (*tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate serial number: %w", err)
	}
	from := now.Add(-time.Hour) // clocks of clients may be behind
	leaf := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: fmt.Sprintf("%s@%d", node, now.Unix())},
		NotBefore:    from, NotAfter: from.Add(selfSignedLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// A client may pin the certificate; it cannot sign others.
		BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(node); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{node}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create self-signed serving certificate: %w", err)
	}
	if leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parse self-signed serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// selfSignedFiles returns the paths at which the kubelet keeps its self-signed
// certificate and key (cmd/kubelet/app/server.go: InitializeTLS).
func selfSignedFiles(pki string) (cert, key string) {
	return filepath.Join(pki, "kubelet.crt"), filepath.Join(pki, "kubelet.key")
}

func loadSelfSigned(pki string) (*tls.Certificate, error) {
	cert, key := selfSignedFiles(pki)
	return (&servingFiles{cert: cert, key: key}).load()
}

// saveSelfSigned writes the key first. After a crash between the two files they do not
// match, and both are created again.
func saveSelfSigned(d disk, pki string, pair *tls.Certificate) error {
	cert, key := selfSignedFiles(pki)
	data, err := encodeKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	if err := d.replace(key, data, 0o600); err != nil {
		return fmt.Errorf("write key of self-signed serving certificate: %w", err)
	}
	data = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	if err := d.replace(cert, data, 0o644); err != nil {
		return fmt.Errorf("write self-signed serving certificate: %w", err)
	}
	return nil
}
