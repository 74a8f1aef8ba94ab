package authn

import (
	"bytes"
	"context"
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

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// maxBundle limits the client CA file; a CA certificate has 1 to 2 kB.
const maxBundle = 1 << 20

// bundle is the client CA bundle that was last loaded successfully.
type bundle struct {
	path string
	log  *slog.Logger

	pool atomic.Pointer[x509.CertPool] // nil until the first successful load

	mu      sync.Mutex
	data    []byte // the content that pool was parsed from
	trouble string // last logged error
}

// follow loads the file at its start and after each change, until ctx ends.
func (b *bundle) follow(ctx context.Context) {
	filewatch.Follow(ctx, filewatch.Following{
		Paths:   func() []string { return []string{b.path} },
		Changed: func() { _ = b.load() }, // has logged the error
		Failed: func(err error) {
			b.log.Warn("cannot watch client CA file, polling it", "path", b.path, "interval", filewatch.PollInterval, "error", err)
		},
	})
}

// user returns the user of a client's certificate chain. If no bundle was loaded yet,
// user tries to load it.
func (b *bundle) user(shown []*x509.Certificate, now time.Time) (*User, error) {
	pool := b.pool.Load()
	if pool == nil {
		if err := b.load(); err != nil {
			return nil, fmt.Errorf("verify client certificate: %w", err)
		}
		pool = b.pool.Load()
	}
	return verifyChain(shown, pool, now)
}

// load loads the file. An invalid file does not replace the loaded bundle: a file
// that is being written must not lock all clients out.
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
		err = fmt.Errorf("load client CA file %s (authentication.x509.clientCAFile): %w", b.path, err)
		if text := err.Error(); text != b.trouble {
			b.trouble = text
			b.log.Warn("cannot load client CA bundle", "error", err,
				"remedy", "repair the file; until then the last valid bundle is used, if there is one")
		}
		return err
	}
	b.pool.Store(pool)
	b.data, b.trouble = data, ""
	b.log.Info("loaded client CA bundle", "path", b.path)
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
		err = fmt.Errorf("file exceeds %d bytes", maxBundle)
	}
	return data, err
}

// parse returns the certificates of a PEM bundle. An invalid certificate makes the
// whole bundle invalid: skipping it would lock out the clients of that CA without an
// error.
func parse(data []byte) (*x509.CertPool, error) {
	pool, count := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue // skipped as in client-go's util/cert
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate %d: %w", count+1, err)
		}
		pool.AddCert(ca)
		count++
	}
	if count == 0 {
		return nil, errors.New("no PEM certificate found")
	}
	return pool, nil
}
