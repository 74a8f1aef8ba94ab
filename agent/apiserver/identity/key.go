package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
)

// newKey generates an ECDSA P-256 key, as the kubelet does.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

// encodeKey returns a key in PEM.
func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	if key, ok := key.(*ecdsa.PrivateKey); ok {
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode key: %w", err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// decodeKey returns the first ECDSA P-256 key in PEM data.
func decodeKey(data []byte) (*ecdsa.PrivateKey, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("no ECDSA P-256 key found")
		}
		var key any
		var err error
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("decode key: %w", err)
		}
		if key, ok := key.(*ecdsa.PrivateKey); ok && key.Curve == elliptic.P256() {
			return key, nil
		}
	}
}

// pendingKey returns the key whose certificate is pending: the stored one, or a new
// one. A stored key whose certificate is already the current one, because only its
// removal is missing, is returned only if again is set: the caller has not yet used
// that certificate.
func (s *store) pendingKey(again bool) (*ecdsa.PrivateKey, error) {
	data, err := readFile(s.keyFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read pending key: %w", err)
	}
	if err == nil {
		// A damaged key is replaced.
		if key, err := decodeKey(data); err == nil && (again || !s.isCurrent(key)) {
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
