package statuspage

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// Limits of a token, in characters.
const (
	minToken = 16
	maxToken = 1024
)

// TokenFile is a Config.Token that reads a file each time, so that another
// token needs no restart.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		token, err := readToken(path)
		if err != nil {
			return "", fmt.Errorf("read the status page's token from %q: %w", path, err)
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
		return "", fmt.Errorf("it holds %d characters: a token has %d to %d", len(token), minToken, maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("a token is one line of printable ASCII characters without spaces")
	}
	return token, nil
}
