package apiservertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a self-signed authority. Each call generates a new key, also
// for the same name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, a.cert = a.sign(a.cert)
	return a
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Under returns an intermediate authority that a signs.
func (a *Authority) Under(name string) *Authority {
	a.t.Helper()
	below := &Authority{t: a.t}
	below.key, below.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return below
}

// Client issues a client certificate that is valid for an hour. change, which may be
// nil, can modify the template.
func (a *Authority) Client(name string, groups []string, change func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	return a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, change)
}

// Server issues a serving certificate for 127.0.0.1.
func (a *Authority) Server() tls.Certificate {
	a.t.Helper()
	return a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "system:node:board"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, nil)
}

func (a *Authority) issue(leaf *x509.Certificate, change func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	leaf.NotBefore, leaf.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	if change != nil {
		change(leaf)
	}
	key, leaf := a.sign(leaf)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// sign generates a key and a certificate for it. An authority without a key signs its
// own certificate.
func (a *Authority) sign(template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-24*time.Hour), time.Now().Add(24*time.Hour)
	}
	by, with := a.cert, a.key
	if with == nil {
		by, with = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, with)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}
