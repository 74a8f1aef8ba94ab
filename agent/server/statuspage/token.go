package statuspage

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// Limits of a token, in ASCII characters.
const (
	minToken = 16
	maxToken = 1024
)

// TokenFile returns a Config.Token that reads the file at path on each call, so
// that a new token needs no restart.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		token, err := readToken(path)
		if err != nil {
			return "", fmt.Errorf("read status page token from %q: %w", path, err)
		}
		return token, nil
	}
}

func readToken(path string) (string, error) {
	text, err := secretfile.Read(path, maxToken+1)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || len(token) > maxToken {
		return "", fmt.Errorf("token has %d characters, must have %d to %d", len(token), minToken, maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("token must be one line of printable ASCII characters without spaces")
	}
	return token, nil
}
