package authn

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxBundle bounds the client CA file; a CA has 1 to 2 kB.
const maxBundle = 1 << 20

// bundle is the client CA file as it was last read in one piece.
type bundle struct {
	path string
	log  *slog.Logger

	pool atomic.Pointer[x509.CertPool] // nil: it could never be read

	mu      sync.Mutex
	data    []byte // what pool was made of
	trouble string // told last
}

// user answers whose the certificates are that a client shows. Where the
// bundle could not be read yet, it is tried here: it may have come.
func (b *bundle) user(shown []*x509.Certificate, now time.Time) (*User, error) {
	pool := b.pool.Load()
	if pool == nil {
		if err := b.load(); err != nil {
			return nil, fmt.Errorf("client certificate: nothing to judge it by: %w", err)
		}
		pool = b.pool.Load()
	}
	return verify(shown, pool, now)
}

// load reads the file. What cannot be used leaves the last bundle as it is: a
// file that is just being written must not lock everybody out.
func (b *bundle) load() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, err := readBounded(b.path)
	if err == nil && b.pool.Load() != nil && bytes.Equal(data, b.data) {
		b.trouble = ""
		return nil
	}
	var pool *x509.CertPool
	if err == nil {
		pool, err = parse(data)
	}
	if err != nil {
		err = fmt.Errorf("client CA file %s (authentication.x509.clientCAFile): %w", b.path, err)
		if text := err.Error(); text != b.trouble {
			b.trouble = text
			b.log.Warn("the client CA file cannot be used: clients are judged by the last one that could, or refused", "error", err)
		}
		return err
	}
	b.pool.Store(pool)
	b.data, b.trouble = data, ""
	b.log.Info("client CA file read", "path", b.path)
	return nil
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBundle+1))
	if err == nil && len(data) > maxBundle {
		err = fmt.Errorf("it has more than %d bytes", maxBundle)
	}
	return data, err
}

// parse takes each certificate of a bundle in PEM. One that cannot be read
// makes the whole bundle unusable: to leave it out would lock out whom it is
// for, and nobody would know why.
func parse(data []byte) (*x509.CertPool, error) {
	pool, count := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue // as client-go's util/cert leaves them out
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", count+1, err)
		}
		pool.AddCert(ca)
		count++
	}
	if count == 0 {
		return nil, errors.New("it has no certificate in PEM")
	}
	return pool, nil
}
