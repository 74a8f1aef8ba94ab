package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/wait"
)

// tries computes the waits between attempts and logs a failure unless the one before was
// of the same kind.
type tries struct {
	log         *slog.Logger
	outage      wait.Backoff
	refused     wait.Backoff
	lastMessage string
}

func newTries(log *slog.Logger) *tries {
	return &tries{
		log: log, outage: wait.Backoff{First: 2 * time.Second, Max: time.Minute},
		refused: wait.Backoff{First: time.Minute, Max: 30 * time.Minute},
	}
}

// kubeconfigError means that no client can be created from a kubeconfig.
type kubeconfigError struct {
	path string
	err  error
}

func (u *kubeconfigError) Error() string { return fmt.Sprintf("kubeconfig %s: %v", u.path, u.err) }
func (u *kubeconfigError) Unwrap() error { return u.err }

// next returns how long to wait after an error, and how an operator can fix it, "" if
// that is unknown. Refusals, rejected credentials and unusable kubeconfigs get the longer
// backoff: they do not go away within seconds.
func (t *tries) next(err error) (wait time.Duration, trouble string) {
	var refused *csrRefusedError
	var broken *kubeconfigError
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &refused):
		return t.refused.Next(), refused.Error() // reported by an event
	case errors.As(err, &broken):
		t.warn("cannot use kubeconfig", "error", err)
		return t.refused.Next(), broken.Error()
	case errors.As(err, &path), errors.As(err, &link):
		t.warn("cannot read or write credential files", "error", err)
		return t.outage.Next(), err.Error()
	case apierrors.IsUnauthorized(err):
		t.warn("API server rejected the credentials", "error", err)
		return t.refused.Next(), "the API server rejects the credentials; the bootstrap token may have expired:" +
			" create one with `kubeadm token create`"
	case apierrors.IsForbidden(err):
		t.warn("credentials may not create certificate signing requests", "error", err)
		return t.refused.Next(), "the credentials may not create certificate signing requests: the user needs the ClusterRole" +
			" system:node-bootstrapper, or must be the node"
	case errors.Is(err, errNotIssued):
		t.warn("certificate signing request has no certificate yet", "error", err)
		return t.outage.Next(), "the certificate signing request has no certificate yet: see `kubectl get csr`"
	}
	t.warn("cannot obtain certificate, will retry", "error", err)
	return t.outage.Next(), ""
}

// old returns how long to wait before a certificate that was just issued is renewed again.
func (t *tries) old() time.Duration {
	t.warn("newly issued certificate is already due for renewal", "remedy",
		"check whether the clock is ahead, or whether the cluster issues certificates for minutes only")
	return t.refused.Next()
}

// warn logs a message, unless it was the last one logged.
func (t *tries) warn(message string, attrs ...any) {
	if t.lastMessage != message {
		t.lastMessage = message
		t.log.Warn(message, attrs...)
	}
}

// reset resets the waits after a success.
func (t *tries) reset() {
	t.outage.Reset()
	t.refused.Reset()
	if t.lastMessage != "" {
		t.lastMessage = ""
		t.log.Info("certificate management recovered")
	}
}
