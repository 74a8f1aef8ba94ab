//go:build cluster

package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// NodeCertificate makes a client certificate of a node which is valid for
// life from now on, by the cluster's CA: certificate and key in PEM, as a
// kubelet keeps them in one file. A life that is over makes one that has
// expired.
func (c *Cluster) NodeCertificate(t *testing.T, node string, life time.Duration) []byte {
	t.Helper()
	return c.Certificate(t, pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, life)
}

// Certificate makes a client certificate of a user, whose groups are the
// subject's organizations, as NodeCertificate does.
func (c *Cluster) Certificate(t *testing.T, user pkix.Name, life time.Duration) []byte {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(c.key("ca.crt"), c.key("ca.key"))
	if err != nil {
		t.Fatalf("read the cluster's CA: %v", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      user,
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatalf("sign a certificate of %s: %v", user.CommonName, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatalf("encode a key: %v", err)
	}
	return append(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})...,
	)
}
