package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"
)

// maxChain limits the certificates that a client sends: its own and the intermediate
// ones.
const maxChain = 8

// verifyChain verifies a client's certificate chain, leaf first, and returns the user of
// the leaf. It returns nil and no error for a certificate without a common name,
// which counts as no certificate (pkg/authentication/request/x509).
func verifyChain(shown []*x509.Certificate, roots *x509.CertPool, now time.Time) (*User, error) {
	leaf := shown[0]
	if len(shown) > maxChain {
		return nil, fmt.Errorf("verify client certificate: chain of %d certificates is longer than %d", len(shown), maxChain)
	}
	options := x509.VerifyOptions{
		Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, between := range shown[1:] {
		options.Intermediates.AddCert(between)
	}
	if _, err := leaf.Verify(options); err != nil {
		return nil, fmt.Errorf("verify client certificate of %q, serial %x: %w", leaf.Subject.CommonName, leaf.SerialNumber, err)
	}
	return certificateUser(leaf)
}

// certificateUser returns the user of a verified certificate: its name is the common name, its
// groups are the organizations.
func certificateUser(leaf *x509.Certificate) (*User, error) {
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := holderUID(leaf)
	if err != nil {
		return nil, fmt.Errorf("read UID from client certificate of %q, serial %x: %w", leaf.Subject.CommonName, leaf.SerialNumber, err)
	}
	fingerprint := sha256.Sum256(leaf.Raw)
	return authenticated(&User{
		Username: leaf.Subject.CommonName, UID: uid, Groups: leaf.Subject.Organization,
		Extra: map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}), nil
}

// holderUID returns the UID of the subject, "" if it has none. It fails if the subject
// has more than one UID or an empty one.
func holderUID(leaf *x509.Certificate) (uid string, err error) {
	found := false
	for _, name := range leaf.Subject.Names {
		if !name.Type.Equal(asn1.X509UID()) {
			continue
		}
		text, _ := name.Value.(string) // a value of another type counts as empty
		switch {
		case found:
			return "", errors.New("subject has more than one UID")
		case text == "":
			return "", errors.New("subject UID is empty")
		}
		uid, found = text, true
	}
	return uid, nil
}
