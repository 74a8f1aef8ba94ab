package page

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
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
	// A pipe without a writer must not hold up the answer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is no regular file")
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("others may use the file (mode %04o): chmod 600 it", mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+2))
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
