package bootstrap

import (
	"errors"
	"strings"
)

// Token is a bootstrap token.
type Token struct {
	// ID is public.
	ID     string
	secret string
}

// ParseToken parses a token of the form abcdef.0123456789abcdef. Its errors do not
// quote the input, which may be a secret.
func ParseToken(s string) (Token, error) {
	id, secret, ok := strings.Cut(s, ".")
	if !ok || !isToken(id, 6) || !isToken(secret, 16) {
		return Token{}, errors.New("the token is not of the form xxxxxx.xxxxxxxxxxxxxxxx (6 and 16 lower-case letters or digits);" +
			" `kubeadm token create --print-join-command` prints one")
	}
	return Token{ID: id, secret: secret}, nil
}

func isToken(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

// String returns the token without its secret, for logs.
func (t Token) String() string { return t.ID + ".<secret>" }

// bearer returns the token with its secret.
func (t Token) bearer() string { return t.ID + "." + t.secret }
