package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/util/keyutil"
)

// newKey generates an ECDSA P-256 key, as the kubelet does.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return data, nil
}

// decodeKey returns the ECDSA P-256 key in PEM data. ok is false if there is another
// key or none.
func decodeKey(data []byte) (key *ecdsa.PrivateKey, ok bool) {
	first, _ := keyutil.ParsePrivateKeyPEM(data) // nil if there is none
	key, ok = first.(*ecdsa.PrivateKey)
	return key, ok && key.Curve == elliptic.P256()
}

// pendingKey returns the key whose certificate is pending: the stored one, or a new one
// that it stores. A stored key whose certificate is already the current one, because only
// its removal is missing, is returned only if again is set: the caller has not yet used
// that certificate.
func (s *store) pendingKey(again bool) (*ecdsa.PrivateKey, error) {
	data, err := readFile(s.keyFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read pending key: %w", err)
	}
	if err == nil {
		// A damaged key is replaced.
		if key, ok := decodeKey(data); ok && (again || !s.isCurrent(key)) {
			return key, nil
		}
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	if data, err = encodeKey(key); err != nil {
		return nil, err
	}
	if err := s.disk.replace(s.keyFile(), data, 0o600); err != nil {
		return nil, fmt.Errorf("write pending key: %w", err)
	}
	return key, nil
}

// isCurrent reports whether the current certificate belongs to the key.
func (s *store) isCurrent(key *ecdsa.PrivateKey) bool {
	pair, err := s.load()
	return err == nil && key.PublicKey.Equal(pair.Leaf.PublicKey)
}

// dropKey removes the pending key, so that the next request gets a new one.
func (s *store) dropKey() error {
	if err := s.disk.remove(s.keyFile()); err != nil {
		return fmt.Errorf("remove pending key: %w", err)
	}
	return nil
}

// pairOf combines an issued certificate in PEM with its key.
func pairOf(cert []byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	data, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, data)
	if err != nil {
		return nil, fmt.Errorf("load issued certificate: %w", err)
	}
	return &pair, nil
}
