package bootstrap

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// pin is the SHA-256 hash of a certificate's public key (SubjectPublicKeyInfo), written
// as sha256:<hex> (cmd/kubeadm/app/util/pubkeypin).
type pin [sha256.Size]byte

func parsePin(s string) (pin, error) {
	kind, digits, _ := strings.Cut(s, ":")
	sum, err := hex.DecodeString(digits)
	if strings.ToLower(kind) != "sha256" || err != nil || len(sum) != sha256.Size {
		return pin{}, fmt.Errorf("CA hash %q is not of the form sha256:<64 hexadecimal digits>;"+
			" `kubeadm token create --print-join-command` prints it", s)
	}
	return pin(sum), nil
}

func (p pin) String() string { return "sha256:" + hex.EncodeToString(p[:]) }

func pinOf(c *x509.Certificate) pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// pinned returns the certificates whose keys are pinned. The operator did not confirm the
// others, so the node must not trust them.
func pinned(all []*x509.Certificate, pins []pin) (trusted []*x509.Certificate, err error) {
	var have []string
	for _, cert := range all {
		have = append(have, pinOf(cert).String())
		if slices.Contains(pins, pinOf(cert)) {
			trusted = append(trusted, cert)
		}
	}
	if len(trusted) == 0 {
		return nil, fmt.Errorf("the server's CA has the hash %s, which does not match --ca-cert-hash:"+
			" this is another cluster, or something impersonates it; compare with the output of"+
			" `kubeadm token create --print-join-command` on the control plane", strings.Join(have, ", "))
	}
	return trusted, nil
}
