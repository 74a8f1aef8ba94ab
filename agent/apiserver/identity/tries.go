package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// tries spaces attempts, and logs what goes wrong once.
type tries struct {
	log     *slog.Logger
	outage  apiclient.Backoff
	refused apiclient.Backoff
	told    string
}

func newTries(log *slog.Logger) *tries {
	return &tries{
		log: log, outage: apiclient.Backoff{First: 2 * time.Second, Max: time.Minute},
		refused: apiclient.Backoff{First: time.Minute, Max: 30 * time.Minute},
	}
}

// unusable says that a kubeconfig does not make a client.
type unusable struct {
	path string
	err  error
}

func (u *unusable) Error() string { return fmt.Sprintf("kubeconfig %s: %v", u.path, u.err) }
func (u *unusable) Unwrap() error { return u.err }

// after is how long to wait after an error, and what somebody can do about it,
// "" if nothing. What a server or a file has judged does not become better
// within seconds.
func (t *tries) after(err error) (wait time.Duration, trouble string) {
	var refused *refusal
	var broken *unusable
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &refused):
		return t.refused.Next(), refused.Error() // an event has told of it
	case errors.As(err, &broken):
		t.tell("a kubeconfig cannot be used", err)
		return t.refused.Next(), broken.Error()
	case errors.As(err, &path), errors.As(err, &link):
		t.tell("the node's credentials cannot be kept", err)
		return t.outage.Next(), err.Error()
	case apierrors.IsUnauthorized(err):
		t.tell("the API server does not take the credentials that a certificate is asked for with", err)
		return t.refused.Next(), "the API server does not take the credentials; a bootstrap token may have expired:" +
			" make one with `kubeadm token create`"
	case apierrors.IsForbidden(err):
		t.tell("the credentials may not ask for a certificate", err)
		return t.refused.Next(), "the credentials may not ask for a certificate: their user needs the ClusterRole" +
			" system:node-bootstrapper, or to be the node"
	case errors.Is(err, errNotIssued):
		t.tell("nobody has approved the node's certificate yet; its request stays", err)
		return t.outage.Next(), "its certificate waits to be approved: see `kubectl get csr`"
	}
	t.tell("the API server gives no certificate yet; attempts go on", err)
	return t.outage.Next(), ""
}

// old is how long to wait before a certificate is renewed that is just issued.
func (t *tries) old() time.Duration {
	t.tell("a certificate that was just issued is to be renewed already: is this board's clock ahead,"+
		" or does the cluster issue certificates for minutes?", nil)
	return t.refused.Next()
}

// tell logs what has not been the matter before.
func (t *tries) tell(message string, err error) {
	if t.told != message {
		t.told = message
		if err == nil {
			t.log.Warn(message)
			return
		}
		t.log.Warn(message, "error", err)
	}
}

// reset is for when all is well.
func (t *tries) reset() {
	t.outage.Reset()
	t.refused.Reset()
	if t.told != "" {
		t.told = ""
		t.log.Info("certificates are in order again")
	}
}
