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

// newKey makes a key of the kind that the kubelet makes.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// encodeKey is a key in PEM.
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

// decodeKey reads the first key in PEM, if it is one that newKey could have
// made.
func decodeKey(data []byte) (*ecdsa.PrivateKey, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("it holds no key of an elliptic curve")
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

// waitingKey is the key that waits for its certificate: the one that lies
// there, or a new one. One that already has its certificate, and was only not
// removed, is for who did not come to use that certificate, again.
func (s *store) waitingKey(again bool) (*ecdsa.PrivateKey, error) {
	data, err := readFile(s.keyFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the waiting key: %w", err)
	}
	if err == nil {
		// One that is damaged gives way to a new one.
		if key, err := decodeKey(data); err == nil && (again || !s.spent(key)) {
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
		return nil, fmt.Errorf("write the waiting key: %w", err)
	}
	return key, nil
}

// spent says that the current certificate is the key's.
func (s *store) spent(key *ecdsa.PrivateKey) bool {
	pair, err := s.load()
	return err == nil && key.PublicKey.Equal(pair.Leaf.PublicKey)
}

// dropKey lets the next request have a new key.
func (s *store) dropKey() error {
	if err := s.disk.remove(s.keyFile()); err != nil {
		return fmt.Errorf("remove the waiting key: %w", err)
	}
	return nil
}

// pairOf joins an issued certificate in PEM and its key.
func pairOf(cert []byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	data, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, data)
	if err != nil {
		return nil, fmt.Errorf("the issued certificate: %w", err)
	}
	return &pair, nil
}
