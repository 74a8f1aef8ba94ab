package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// credentialFiles is the content of the credential files.
type credentialFiles struct {
	kubeconfig *Kubeconfig // nil if kubeconfigErr
	bootstrap  *Kubeconfig // nil if bootstrapErr, or without one
	enrol      *Kubeconfig // nil if enrolErr, or without one
	pair       *tls.Certificate
	// foreign means that the pair comes from the kubeconfig and was not issued to a
	// request of this node.
	foreign bool
	// rejected means that the API server rejected the bootstrap kubeconfig.
	rejected bool

	kubeconfigErr, bootstrapErr, enrolErr, pairErr error
}

// action is the next thing to do.
type action int

const (
	// idle waits until a file changes or the clock is set.
	idle action = iota
	// use continues with the kubeconfig and its credentials.
	use
	// renew requests the next certificate with the current one.
	renew
	// enrol requests a certificate with credentials other than the node's own
	// certificate.
	enrol
)

// step is an action with its parameters.
type step struct {
	do action
	// with holds the credentials for enrol.
	with *Kubeconfig
	// until is when to decide again; zero means never.
	until time.Time
	// problem describes what an operator must fix; "" means nothing.
	problem string
}

// rules are the inputs of a decision other than files and time.
type rules struct {
	kubeconfig, bootstrap, enrol string // paths
	rotate                       bool
	// plausible means that the current time can be trusted.
	plausible bool
	// due returns when the certificate is to be renewed.
	due func(*x509.Certificate) time.Time
}

// decide returns the next step for the given files.
func decide(f *credentialFiles, r *rules, now time.Time) step {
	expired := false
	if f.kubeconfig != nil && f.pairErr == nil {
		if f.pair == nil {
			return step{do: use} // a token, or nothing
		}
		leaf := f.pair.Leaf
		expired = r.plausible && now.After(leaf.NotAfter)
		switch {
		case !r.plausible:
			return step{do: use}
		case expired:
		case r.rotate && (f.foreign || !now.Before(r.due(leaf))):
			return step{do: renew}
		case r.rotate:
			return step{do: use, until: r.due(leaf)}
		default:
			return step{do: use, until: leaf.NotAfter}
		}
	}
	with := f.bootstrap
	if expired && f.enrol != nil && (with == nil || f.rejected) {
		with = f.enrol
	}
	problem := explain(f, r, expired)
	switch {
	case with == nil:
		return step{problem: problem}
	case !r.plausible:
		return step{problem: problem + "; waiting for the clock to be set"}
	}
	return step{do: enrol, with: with, problem: problem}
}

// rejects reports whether err means that the enrolment kubeconfig must replace the
// bootstrap kubeconfig: the token of a bootstrap kubeconfig that was never removed
// expires after a day.
func (f *credentialFiles) rejects(err error) bool {
	return apierrors.IsUnauthorized(err) && f.enrol != nil && !f.rejected
}

// explain describes why there is no usable identity and, if an operator must act,
// what to do.
func explain(f *credentialFiles, r *rules, expired bool) string {
	var what string
	switch {
	case expired:
		what = fmt.Sprintf("the client certificate of %s expired at %s", r.kubeconfig, f.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case errors.Is(f.kubeconfigErr, fs.ErrNotExist):
		what = "there is no kubeconfig " + r.kubeconfig
	case f.kubeconfigErr != nil:
		what = f.kubeconfigErr.Error()
	default:
		what = fmt.Sprintf("the credentials in %s are unusable: %v", r.kubeconfig, f.pairErr)
	}
	switch {
	case expired && f.enrol != nil && (f.bootstrap == nil || f.rejected):
		return what + "; requesting a certificate with " + r.enrol
	case f.bootstrap != nil:
		return what + "; requesting a certificate with " + r.bootstrap
	case r.bootstrap == "":
		return what + "; no bootstrap kubeconfig is configured: set --bootstrap-kubeconfig, or replace the kubeconfig"
	}
	if f.bootstrapErr != nil && !errors.Is(f.bootstrapErr, fs.ErrNotExist) {
		what += "; " + f.bootstrapErr.Error()
	}
	if expired && f.enrolErr != nil {
		what += "; " + f.enrolErr.Error()
	}
	if f.kubeconfig == nil && !errors.Is(f.kubeconfigErr, fs.ErrNotExist) {
		what += "; repair that file, or"
	} else {
		what += ";"
	}
	return what + " create a token on the control plane with `kubeadm token create --print-join-command`," +
		" and a bootstrap kubeconfig with it at " + r.bootstrap + " (`tinylet join` writes it)"
}

// renewal returns when to renew a certificate: after 70 to 90 % of its lifetime.
// share, between 0 and 1, selects the point in that range (client-go's
// util/certificate: nextRotationDeadline).
func renewal(leaf *x509.Certificate, share float64) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*share)))
}
