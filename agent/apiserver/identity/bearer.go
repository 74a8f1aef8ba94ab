package identity

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// tokenAge is how long a token file is cached before it is read again (client-go's
// transport/token_source.go).
const tokenAge = time.Minute

// bearer is a bearer token. A token with a path is read from that file.
type bearer struct {
	token, path string

	mu    sync.Mutex
	fresh time.Time
}

// read returns the token. While the token file cannot be read, it returns the last
// token that was read. It fails only if the file was never read.
func (b *bearer) read() (string, error) {
	if b.path == "" {
		return b.token, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fresh.IsZero() && time.Since(b.fresh) < tokenAge {
		return b.token, nil
	}
	data, err := readFile(b.path)
	token := strings.TrimSpace(string(data))
	if err == nil && token == "" {
		err = fmt.Errorf("%s: file is empty", b.path)
	}
	if err == nil {
		b.token, b.fresh = token, time.Now()
	} else if b.fresh.IsZero() {
		return "", fmt.Errorf("read token file: %w", err)
	}
	return b.token, nil
}
