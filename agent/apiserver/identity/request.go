package identity

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// template describes a certificate to request.
type template struct {
	prefix string // of the request's name
	signer string
	usage  certificatesv1.KeyUsage // in addition to digital signature
	node   string
	dns    []string
	ips    []net.IP
}

func clientTemplate(node string) template {
	return template{
		prefix: "node-csr-", node: node,
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth,
	}
}

// servingTemplate sorts the addresses, so that their order does not matter.
func servingTemplate(node string, hostIPs []string) template {
	t := template{
		prefix: "csr-", node: node,
		signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth,
		dns: []string{node},
	}
	for _, text := range hostIPs {
		if ip := net.ParseIP(text); ip != nil {
			t.ips = append(t.ips, ip)
		}
	}
	slices.SortFunc(t.ips, func(a, b net.IP) int { return cmp.Compare(a.String(), b.String()) })
	t.ips = slices.CompactFunc(t.ips, net.IP.Equal)
	return t
}

// fits reports whether a certificate has everything that the template asks for.
// Further addresses are allowed (client-go's util/certificate).
func (t *template) fits(leaf *x509.Certificate) bool {
	subject := t.subject()
	if leaf.Subject.CommonName != subject.CommonName || !slices.Contains(leaf.Subject.Organization, subject.Organization[0]) {
		return false
	}
	for _, name := range t.dns {
		if !slices.Contains(leaf.DNSNames, name) {
			return false
		}
	}
	for _, ip := range t.ips {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

func (t *template) subject() pkix.Name {
	return pkix.Name{CommonName: "system:node:" + t.node, Organization: []string{"system:nodes"}}
}

func (t *template) usages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, t.usage}
}

// name returns the name of the request, a hash of the key and of everything that is
// requested. For client certificates it equals the name of the kubelet's bootstrap,
// so that each finds the request of the other (pkg/kubelet/certificate/bootstrap:
// digestedName).
func (t *template) name(key *ecdsa.PrivateKey) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	subject := t.subject()
	parts := [][]byte{public, []byte(subject.CommonName), []byte(subject.Organization[0])}
	for _, usage := range t.usages() {
		parts = append(parts, []byte(usage))
	}
	for _, name := range t.dns {
		parts = append(parts, []byte(name))
	}
	for _, ip := range t.ips {
		parts = append(parts, []byte(ip.String()))
	}
	hash := sha512.New512_256()
	for _, part := range parts {
		// The separator is unambiguous: the encoding contains no "|".
		hash.Write([]byte(base64.RawURLEncoding.EncodeToString(part) + "|"))
	}
	return t.prefix + base64.RawURLEncoding.EncodeToString(hash.Sum(nil)), nil
}

// request returns the CertificateSigningRequest to create.
func (t *template) request(key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	name, err := t.name(key)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: t.subject(), DNSNames: t.dns, IPAddresses: t.ips,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("create certificate signing request: %w", err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: t.signer,
			Usages:     t.usages(),
		},
	}, nil
}

// checkOwnership returns an error if an existing request was not made by this node with the
// key.
func (t *template) checkOwnership(have *certificatesv1.CertificateSigningRequest, key *ecdsa.PrivateKey) error {
	block, _ := pem.Decode(have.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("spec.request is not a certificate request in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("parse spec.request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return fmt.Errorf("verify spec.request: %w", err)
	}
	subject := t.subject()
	switch {
	case !key.PublicKey.Equal(request.PublicKey):
		return errors.New("spec.request has another key")
	case request.Subject.CommonName != subject.CommonName || !slices.Equal(request.Subject.Organization, subject.Organization):
		return fmt.Errorf("spec.request has the subject %q", request.Subject)
	case have.Spec.SignerName != t.signer:
		return fmt.Errorf("signerName is %s", have.Spec.SignerName)
	}
	return nil
}
