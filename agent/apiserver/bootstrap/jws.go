package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// errSignature means that a signature was not made with the token's secret over the
// content.
var errSignature = errors.New("signature does not match the token")

// verify verifies a detached JWS (RFC 7515, appendix F) with HS256 over content
// (k8s.io/cluster-bootstrap/token/jws).
func verify(detached string, content []byte, token Token) error {
	parts := strings.Split(detached, ".")
	if len(parts) != 3 || parts[1] != "" {
		return errors.New("signature is not a detached JWS")
	}
	head, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil {
		return fmt.Errorf("decode signature header: %w", err)
	}
	var header struct {
		Algorithm string   `json:"alg"`
		Key       string   `json:"kid"`
		Critical  []string `json:"crit"`
	}
	if err := json.Unmarshal(head, &header); err != nil {
		return fmt.Errorf("parse signature header: %w", err)
	}
	switch {
	case header.Algorithm != "HS256":
		return fmt.Errorf("signature algorithm is %q, not HS256", header.Algorithm)
	case header.Key != token.ID:
		return fmt.Errorf("signature is by token %q", header.Key)
	case len(header.Critical) > 0:
		return fmt.Errorf("signature requires unknown extensions %q", header.Critical)
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		return fmt.Errorf("decode signature: %w", err)
	}
	mac := hmac.New(sha256.New, []byte(token.secret))
	mac.Write([]byte(parts[0] + "." + base64.RawURLEncoding.EncodeToString(content)))
	if !hmac.Equal(got, mac.Sum(nil)) {
		return errSignature
	}
	return nil
}
