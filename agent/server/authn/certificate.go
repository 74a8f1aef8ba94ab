package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/asn1"
)

// maxChain is how many certificates a client may show: its own and those
// between it and its CA.
const maxChain = 8

// verify judges the certificates that a client shows, its own first, and
// answers whose they are. Nil and no error is a certificate that names
// nobody, which counts as none (pkg/authentication/request/x509).
func verify(shown []*x509.Certificate, roots *x509.CertPool, now time.Time) (*User, error) {
	leaf := shown[0]
	if len(shown) > maxChain {
		return nil, fmt.Errorf("client certificate: %d certificates are shown, and more than %d are not looked at", len(shown), maxChain)
	}
	options := x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(shown) > 1 {
		options.Intermediates = x509.NewCertPool()
		for _, between := range shown[1:] {
			options.Intermediates.AddCert(between)
		}
	}
	if _, err := leaf.Verify(options); err != nil {
		return nil, fmt.Errorf("client certificate of %q, serial %x: %w", leaf.Subject.CommonName, leaf.SerialNumber, err)
	}
	return holder(leaf)
}

// holder is the user that a good certificate names: the common name, with the
// organizations as groups.
func holder(leaf *x509.Certificate) (*User, error) {
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := holderUID(leaf)
	if err != nil {
		return nil, fmt.Errorf("client certificate of %q, serial %x: %w", leaf.Subject.CommonName, leaf.SerialNumber, err)
	}
	fingerprint := sha256.Sum256(leaf.Raw)
	user := &User{
		Name: leaf.Subject.CommonName, UID: uid, Groups: leaf.Subject.Organization,
		Extra: map[string][]string{credentialID: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}
	return user.authenticated(), nil
}

// holderUID is the user's UID, where the subject has one: then once, and not
// empty.
func holderUID(leaf *x509.Certificate) (uid string, err error) {
	found := false
	for _, name := range leaf.Subject.Names {
		if !name.Type.Equal(asn1.X509UID()) {
			continue
		}
		text, _ := name.Value.(string) // what is no text counts as empty
		switch {
		case found:
			return "", errors.New("the subject has more than one UID")
		case text == "":
			return "", errors.New("the subject's UID is empty")
		}
		uid, found = text, true
	}
	return uid, nil
}
