package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/wait"
)

// approvalLimit bounds the wait for the certificate of a request, after which the attempt
// fails and the next one reads the same request again (client-go's util/certificate:
// certificateWaitTimeout).
const approvalLimit = 15 * time.Minute

// autoApprovalTimeout is how long a cluster with automatic approval may take before the
// request is reported as waiting for approval, and how long a signer may take after that.
// It counts across watches.
const autoApprovalTimeout = 10 * time.Second

var (
	// errNotIssued means that no certificate was issued within the time limit.
	errNotIssued = errors.New("certificate not issued in time")
	// errInterrupted means that the caller must decide again before it waits on.
	errInterrupted = errors.New("interrupted")
	// errGone means that a request was deleted. The cluster's CSR cleaner does that after
	// a day.
	errGone = errors.New("deleted while pending")
)

// csrRefusedError means that a request will not lead to a certificate.
type csrRefusedError struct{ name, why string }

func (r *csrRefusedError) Error() string {
	return fmt.Sprintf("certificate signing request %s: %s", r.name, r.why)
}

// pending is what was last waited for: the approval of a request, or its certificate.
type pending struct {
	name     string // of the request
	approved bool
}

// issuer requests one kind of certificate. It is not safe for concurrent use.
type issuer struct {
	store         *store
	log           *slog.Logger
	now           func() time.Time
	pending       pending
	since         time.Time // when pending began
	pendingLogged bool
	// waits receives what an operator must do for a pending request; nil drops it.
	waits func(trouble string)
}

// obtain requests a certificate and waits for it, at most approvalLimit. A repeated
// call continues with the same request, unless that was refused. The parameter again is
// that of pendingKey. A value on interrupt ends the wait with errInterrupted, but not a
// request to the API server in progress.
func (i *issuer) obtain(ctx context.Context, api apiclient.API, t template, again bool, interrupt <-chan struct{}) (*tls.Certificate, error) {
	key, err := i.store.pendingKey(again)
	if err != nil {
		return nil, err
	}
	pair, err := i.pursue(ctx, api, t, key, interrupt)
	var refused *csrRefusedError
	if errors.As(err, &refused) {
		err = errors.Join(err, i.store.dropKey())
	}
	return pair, err
}

func (i *issuer) pursue(ctx context.Context, api apiclient.API, t template, key *ecdsa.PrivateKey, interrupt <-chan struct{}) (*tls.Certificate, error) {
	request, err := i.createRequest(ctx, api, t, key)
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(approvalLimit)
	defer limit.Stop()
	cert, err := i.await(ctx, api, request, limit.C, interrupt)
	if err != nil {
		return nil, err
	}
	pair, err := pairOf(cert, key)
	if err != nil {
		return nil, &csrRefusedError{request.Name, err.Error()}
	}
	switch leaf := pair.Leaf; {
	case !t.fits(leaf):
		return nil, &csrRefusedError{request.Name, fmt.Sprintf("the certificate for %q does not match the request", leaf.Subject)}
	case i.now().After(leaf.NotAfter):
		return nil, &csrRefusedError{request.Name, fmt.Sprintf("the certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))}
	}
	return pair, nil
}

// createRequest creates the request, or returns the existing one of the same name.
func (i *issuer) createRequest(ctx context.Context, api apiclient.API, t template, key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	request, err := t.request(key)
	if err != nil {
		return nil, err
	}
	have := &certificatesv1.CertificateSigningRequest{}
	err = api.Create(ctx, apiclient.CertificateSigningRequests, "", "", "", request, have)
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return have, err
	}
	have = &certificatesv1.CertificateSigningRequest{}
	if err := api.Get(ctx, apiclient.CertificateSigningRequests, "", request.Name, have); err != nil {
		return nil, err
	}
	if err := t.checkOwnership(have, key); err != nil {
		return nil, &csrRefusedError{request.Name, err.Error()}
	}
	return have, nil
}

// await watches the request, starting from its given state, and returns the certificate
// in PEM.
func (i *issuer) await(ctx context.Context, api apiclient.API, request *certificatesv1.CertificateSigningRequest, limit <-chan time.Time, interrupt <-chan struct{}) ([]byte, error) {
	name, uid := request.Name, request.UID
	backoff := &wait.Backoff{}
	for {
		if cert, err := issuedCertificate(request, uid); cert != nil || err != nil {
			return cert, err
		}
		i.reportPending(request)
		cert, err := i.watchRequest(ctx, api, request, limit, interrupt)
		if cert != nil || (err != nil && !retryWatch(err)) {
			return cert, err
		}
		// The watch ended. Read what it may have missed.
		if err := pause(ctx, backoff.Next(), limit, interrupt); err != nil {
			return nil, err
		}
		request = &certificatesv1.CertificateSigningRequest{}
		if err := api.Get(ctx, apiclient.CertificateSigningRequests, "", name, request); err != nil {
			return nil, err
		}
	}
}

// retryWatch reports whether the watch is to be repeated after err.
func retryWatch(err error) bool {
	var refused *csrRefusedError
	return !errors.As(err, &refused) && !errors.Is(err, errNotIssued) && !errors.Is(err, errInterrupted) && !errors.Is(err, errGone) &&
		!apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
}

// issuedCertificate returns the certificate of a request in PEM, nil while there is none.
func issuedCertificate(request *certificatesv1.CertificateSigningRequest, uid types.UID) ([]byte, error) {
	if request.UID != uid {
		return nil, &csrRefusedError{request.Name, "replaced by another object"}
	}
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		if c := condition(request, kind); c != nil {
			return nil, &csrRefusedError{request.Name, fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message)}
		}
	}
	if cert := bytes.TrimSpace(request.Status.Certificate); condition(request, certificatesv1.CertificateApproved) != nil && len(cert) > 0 {
		return cert, nil
	}
	return nil, nil
}

// condition returns a true condition of a request, nil if there is none of its type.
func condition(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for n := range request.Status.Conditions {
		if c := &request.Status.Conditions[n]; c.Type == kind && (c.Status == v1.ConditionTrue || c.Status == "") {
			return c
		}
	}
	return nil
}

// watchRequest watches one request until it has a certificate, is refused or deleted, or
// the watch ends. It returns nil and nil if the API server ended the watch.
func (i *issuer) watchRequest(ctx context.Context, api apiclient.API, request *certificatesv1.CertificateSigningRequest, limit <-chan time.Time, interrupt <-chan struct{}) ([]byte, error) {
	name, uid := request.Name, request.UID
	w, err := api.Watch(ctx, apiclient.CertificateSigningRequests, "", metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: request.ResourceVersion,
	})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	approvalTimer := time.NewTimer(autoApprovalTimeout - time.Since(i.since))
	defer approvalTimer.Stop()
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open || e.Type == watch.Error {
				return nil, context.Cause(ctx)
			}
			now, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || now.Name != name {
				continue
			}
			if e.Type == watch.Deleted {
				return nil, fmt.Errorf("certificate signing request %s: %w", name, errGone)
			}
			if cert, err := issuedCertificate(now, uid); cert != nil || err != nil {
				return cert, err
			}
			request = now
			i.reportPending(request)
			approvalTimer.Reset(autoApprovalTimeout - time.Since(i.since))
		case <-approvalTimer.C:
			i.reportPending(request)
		case <-limit:
			return nil, errNotIssued
		case <-interrupt:
			return nil, errInterrupted
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reportPending reports what a request without a certificate waits for, once it has done so
// for autoApprovalTimeout. It logs that once.
func (i *issuer) reportPending(request *certificatesv1.CertificateSigningRequest) {
	p := pending{request.Name, condition(request, certificatesv1.CertificateApproved) != nil}
	if i.pending != p {
		i.pending, i.since, i.pendingLogged = p, time.Now(), false
	}
	if time.Since(i.since) < autoApprovalTimeout {
		return
	}
	message, remedy := "certificate signing request is waiting for approval", "kubectl certificate approve "+request.Name
	trouble := "the " + message + ": unless the cluster approves it automatically, run `" + remedy + "`"
	if p.approved {
		message, remedy = "certificate signing request is approved but not signed", "check kube-controller-manager"
		trouble = "the " + message + ": " + remedy + ", which signs for " + request.Spec.SignerName
	}
	if i.waits != nil {
		i.waits(trouble)
	}
	if !i.pendingLogged {
		i.pendingLogged = true
		i.log.Info(message, "signer", request.Spec.SignerName, "remedy", remedy)
	}
}

// pause waits for d. It returns early with errNotIssued, errInterrupted or the
// cause of ctx. A nil limit or interrupt never ends the wait.
func pause(ctx context.Context, d time.Duration, limit <-chan time.Time, interrupt <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-limit:
		return errNotIssued
	case <-interrupt:
		return errInterrupted
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
