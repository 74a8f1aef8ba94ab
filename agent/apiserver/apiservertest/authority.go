package apiservertest

import (
	"cmp"
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

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
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
	return newAuthority(t, name, nil)
}

func newAuthority(t testing.TB, name string, by *Authority) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	if by == nil {
		by = a
	}
	a.cert = by.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().AddDate(20, 0, 0),
	}, &a.key.PublicKey)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Certificate returns the authority's certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Under returns an intermediate authority that a signs.
func (a *Authority) Under(name string) *Authority {
	a.t.Helper()
	return newAuthority(a.t, name, a)
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
	key := newKey(a.t)
	leaf = a.sign(leaf, &key.PublicKey)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Approve approves a request and issues its certificate.
func (a *Authority) Approve(r *certificatesv1.CertificateSigningRequest, from, to time.Time) {
	a.t.Helper()
	block, _ := pem.Decode(r.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		a.t.Errorf("request: %v", err)
		return
	}
	usage := x509.ExtKeyUsageClientAuth
	if r.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		usage = x509.ExtKeyUsageServerAuth
	}
	cert := a.sign(&x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, request.PublicKey)
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue}}
	r.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// sign signs a certificate for a public key. An authority without a certificate signs
// its own.
func (a *Authority) sign(template *x509.Certificate, public any) *x509.Certificate {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, cmp.Or(a.cert, template), public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}
