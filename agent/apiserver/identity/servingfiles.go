package identity

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// servingFiles is a serving certificate in files of the operator.
type servingFiles struct {
	cert, key string
	log       *slog.Logger

	mu        sync.Mutex
	pair      *tls.Certificate
	checkedAt time.Time
	seen      [2]filewatch.Signature
	err       error
}

// current returns the certificate. It checks at most once a second whether the
// files have changed. While they are unusable, it returns the previous certificate.
func (f *servingFiles) current(now time.Time) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := now.Sub(f.checkedAt); f.checkedAt.IsZero() || age >= time.Second || age < 0 {
		f.checkedAt = now
		f.reload()
	}
	if f.pair == nil {
		return nil, fmt.Errorf("%w: %w", errNoServing, f.err)
	}
	return f.pair, nil
}

func (f *servingFiles) reload() {
	var now [2]filewatch.Signature
	for i, path := range []string{f.cert, f.key} {
		now[i], _ = filewatch.NewPath(path).Stat() // without a file, that of no file
	}
	if now == f.seen && (f.pair != nil || f.err != nil) {
		return
	}
	f.seen = now
	pair, err := f.load()
	if f.err = err; err == nil {
		f.pair = pair
	} else if f.pair != nil {
		f.log.Warn("cannot reload serving certificate, keeping previous", "error", err)
	}
}

func (f *servingFiles) load() (*tls.Certificate, error) {
	cert, err := readFile(f.cert)
	if err != nil {
		return nil, fmt.Errorf("read serving certificate: %w", err)
	}
	key, err := readFile(f.key)
	if err != nil {
		return nil, fmt.Errorf("read serving key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load serving certificate %s: %w", f.cert, err)
	}
	return &pair, nil
}
