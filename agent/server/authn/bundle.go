package authn

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/store/secretfile"
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
// that is being written must not lock all clients out. An invalid certificate makes the
// whole file invalid: skipping it would lock out the clients of that CA without an error.
func (b *bundle) load() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, err := secretfile.ReadAny(b.path, maxBundle)
	if err == nil && b.pool.Load() != nil && bytes.Equal(data, b.data) {
		b.trouble = ""
		return nil
	}
	var pool *x509.CertPool
	if err == nil {
		pool, err = cert.NewPoolFromBytes(data)
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
