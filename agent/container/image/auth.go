package image

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// credentials returns the credentials to try for an image: those of the pod's secrets, then
// the node's. Those of the most specific registry come first, those of the same registry in
// the order of the secrets. problems joins the errors of secrets that cannot be parsed.
func (p *Puller) credentials(n Name, secrets []*v1.Secret) (found []credential, problems error) {
	ring := make(keyring)
	for _, s := range secrets {
		c, err := secretConfig(s)
		problems = errors.Join(problems, err)
		ring.add(c)
	}
	found = slices.Concat(ring.lookup(n), p.cfg.Node.lookup(n))
	if !p.cfg.MirrorCredentials {
		found = forServers(found, n.Domain)
	}
	return found, problems
}

// forServers binds credentials to the hosts that serve the registry domain.
func forServers(all []credential, domain string) []credential {
	hosts := []string{domain}
	if domain == dockerHub {
		// containerd's default host for Docker Hub, and the host that many
		// hosts.toml files name.
		hosts = []string{"registry-1.docker.io", dockerHub}
	}
	out := make([]credential, 0, len(all)*len(hosts))
	for _, c := range all {
		for _, host := range hosts {
			c.server = "https://" + host // containerd compares only the host
			out = append(out, c)
		}
	}
	return out
}

// hashCredentials returns a hash of a set of credentials. Pods share a pull only if
// they would present the same credentials to the registry.
func hashCredentials(credentials []credential) [sha256.Size]byte {
	h := sha256.New()
	for _, c := range credentials {
		for _, s := range []string{c.username, c.password} {
			_ = binary.Write(h, binary.LittleEndian, uint64(len(s)))
			h.Write([]byte(s))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// try pulls with one credential after the other until one succeeds. Without credentials it
// pulls anonymously, as the kubelet does. Its error aggregates the errors of the credentials
// that it tried.
func (p *Puller) try(ctx context.Context, spec *runtimeapi.ImageSpec, credentials []credential, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error) {
	if len(credentials) == 0 {
		return p.cfg.Images.PullImage(ctx, spec, nil, sandbox)
	}
	var failed []error
	for _, c := range credentials {
		auth := &runtimeapi.AuthConfig{Username: c.username, Password: c.password, ServerAddress: c.server}
		ref, err := p.cfg.Images.PullImage(ctx, spec, auth, sandbox)
		if err == nil {
			return ref, nil
		}
		failed = append(failed, redact(err, c))
		if ctx.Err() != nil || errors.Is(err, container.ErrUnavailable) {
			break // another credential would not help
		}
	}
	return "", utilerrors.NewAggregate(failed)
}

// minRedacted is the length in bytes of the shortest secret that is redacted
// in messages. Shorter ones also occur in ordinary words.
const minRedacted = 4

// redactedError is an error of the runtime with the credentials redacted, because a
// registry may return them in its message.
type redactedError struct {
	message string
	err     error
}

func (e *redactedError) Error() string { return e.message }

// Is matches against the runtime's error. There is no Unwrap method, so that
// the unredacted error cannot be printed.
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }

// As matches against the runtime's error.
func (e *redactedError) As(target any) bool { return errors.As(e.err, target) }

// redact redacts the password of c, and the basic auth made from it, in the
// message of err.
func redact(err error, c credential) error {
	message := err.Error()
	basic := base64.StdEncoding.EncodeToString([]byte(c.username + ":" + c.password))
	for _, secret := range []string{c.password, basic} {
		if len(secret) >= minRedacted {
			message = strings.ReplaceAll(message, secret, "…")
		}
	}
	if message == err.Error() {
		return err
	}
	return &redactedError{message: message, err: err}
}

// withSecretErrors adds the errors of unusable secrets to the error of a pull.
func withSecretErrors(err, problems error) error {
	if problems == nil {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.ReplaceAll(problems.Error(), "\n", "; "))
}
