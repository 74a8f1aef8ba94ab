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

// found is what the files hold.
type found struct {
	kubeconfig *Kubeconfig // nil if kubeconfigErr
	bootstrap  *Kubeconfig // nil if bootstrapErr, or without one
	enrol      *Kubeconfig // nil if enrolErr, or without one
	pair       *tls.Certificate
	// foreign says that the pair is the kubeconfig's own, not one that this
	// node has asked for.
	foreign bool
	// rejected says that the server did not take the bootstrap kubeconfig.
	rejected bool

	kubeconfigErr, bootstrapErr, enrolErr, pairErr error
}

// action is what is to be done next.
type action int

const (
	// idle waits for a file to change or the clock to be set.
	idle action = iota
	// use goes on with the kubeconfig and its credentials.
	use
	// renew asks for the next certificate with the current one.
	renew
	// enrol asks for a certificate with other credentials than a certificate
	// of the node's own.
	enrol
)

// step is an action and what it needs.
type step struct {
	do action
	// with are the credentials to enrol with.
	with *Kubeconfig
	// until is when to decide anew, zero for never.
	until time.Time
	// problem says what somebody has to do, "" if nothing.
	problem string
}

// rules are what a decision depends on besides files and time.
type rules struct {
	kubeconfig, bootstrap, enrol string // paths
	rotate                       bool
	// plausible says that now can be believed.
	plausible bool
	// due is when the certificate is to be renewed.
	due func(*x509.Certificate) time.Time
}

// decide says what to do about what was found.
func decide(f *found, r *rules, now time.Time) step {
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
		return step{problem: problem + "; the clock has to be set first"}
	}
	return step{do: enrol, with: with, problem: problem}
}

// rejects says that an error is one that the enrolment kubeconfig is for: a
// bootstrap token that nobody removed is worth nothing after a day.
func (f *found) rejects(err error) bool {
	return apierrors.IsUnauthorized(err) && f.enrol != nil && !f.rejected
}

// explain says why there is no usable identity, and what to do if nothing can
// be done here.
func explain(f *found, r *rules, expired bool) string {
	var what string
	switch {
	case expired:
		what = fmt.Sprintf("the client certificate of %s expired at %s", r.kubeconfig, f.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case errors.Is(f.kubeconfigErr, fs.ErrNotExist):
		what = "there is no kubeconfig " + r.kubeconfig
	case f.kubeconfigErr != nil:
		what = f.kubeconfigErr.Error()
	default:
		what = fmt.Sprintf("the credentials of %s cannot be used: %v", r.kubeconfig, f.pairErr)
	}
	switch {
	case expired && f.enrol != nil && (f.bootstrap == nil || f.rejected):
		return what + "; a certificate is being asked for with " + r.enrol
	case f.bootstrap != nil:
		return what + "; a certificate is being asked for with " + r.bootstrap
	case r.bootstrap == "":
		return what + "; no bootstrap kubeconfig is configured: name one with --bootstrap-kubeconfig, or replace the kubeconfig"
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
	return what + " make a new token on the control plane with `kubeadm token create --print-join-command`," +
		" and a bootstrap kubeconfig of it at " + r.bootstrap + " (`tinylet join` writes it)"
}

// renewal is when a certificate is to be renewed: after 70 to 90 % of its
// life, as share between 0 and 1 says (client-go's util/certificate:
// nextRotationDeadline).
func renewal(leaf *x509.Certificate, share float64) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*share)))
}
