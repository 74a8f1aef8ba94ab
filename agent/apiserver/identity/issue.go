package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// approvalLimit is how long a request may wait for its certificate before it
// is looked at anew (client-go's util/certificate: certificateWaitTimeout).
const approvalLimit = 15 * time.Minute

// patience is how long clusters that approve requests by themselves may take.
const patience = 10 * time.Second

// signing is the API server as far as certificates are asked of it.
type signing interface {
	Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error
	Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error
	Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error)
}

var (
	// errNotIssued says that a request waited its time in vain.
	errNotIssued = errors.New("no certificate was issued in time")
	// errInterrupted says that there may be something better to do than to
	// wait.
	errInterrupted = errors.New("interrupted")
	// errGone says that a request was deleted, as clusters do after a day.
	errGone = errors.New("it was deleted while it waited")
)

// refusal says that a request will not lead to a certificate.
type refusal struct{ name, why string }

func (r *refusal) Error() string {
	return fmt.Sprintf("certificate signing request %s: %s", r.name, r.why)
}

// issuer asks for one kind of certificate. It is for one goroutine.
type issuer struct {
	store *store
	log   *slog.Logger
	now   func() time.Time
	told  string // the request of which was said that it waits
	// waits is told what somebody has to do for a request; nil tells nobody.
	waits func(trouble string)
}

// obtain asks for a certificate and waits for it, at most approvalLimit. Who
// calls it again goes on with the same request, unless that was refused.
// Again is of waitingKey. What comes on interrupt ends the wait.
func (i *issuer) obtain(ctx context.Context, api signing, t template, again bool, interrupt <-chan struct{}) (*tls.Certificate, error) {
	key, err := i.store.waitingKey(again)
	if err != nil {
		return nil, err
	}
	pair, err := i.pursue(ctx, api, t, key, interrupt)
	var refused *refusal
	if errors.As(err, &refused) {
		err = errors.Join(err, i.store.dropKey())
	}
	return pair, err
}

func (i *issuer) pursue(ctx context.Context, api signing, t template, key *ecdsa.PrivateKey, interrupt <-chan struct{}) (*tls.Certificate, error) {
	request, err := i.ask(ctx, api, t, key)
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
		return nil, &refusal{request.Name, err.Error()}
	}
	if flaw := t.flaw(pair.Leaf, i.now()); flaw != "" {
		return nil, &refusal{request.Name, flaw}
	}
	return pair, nil
}

// ask creates the request or finds it.
func (i *issuer) ask(ctx context.Context, api signing, t template, key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	request, err := t.request(key)
	if err != nil {
		return nil, err
	}
	have := &certificatesv1.CertificateSigningRequest{}
	err = api.Create(ctx, apiclient.SigningRequests, "", "", "", request, have)
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return have, err
	}
	have = &certificatesv1.CertificateSigningRequest{}
	if err := api.Get(ctx, apiclient.SigningRequests, "", request.Name, have); err != nil {
		return nil, err
	}
	if err := t.ours(have, key); err != nil {
		return nil, &refusal{request.Name, err.Error()}
	}
	return have, nil
}

// await waits for the certificate of a request by watching it, from the state
// that is given on.
func (i *issuer) await(ctx context.Context, api signing, request *certificatesv1.CertificateSigningRequest, limit <-chan time.Time, interrupt <-chan struct{}) ([]byte, error) {
	name, uid := request.Name, request.UID
	backoff := &apiclient.Backoff{}
	for {
		if cert, err := judge(request, uid); cert != nil || err != nil {
			return cert, err
		}
		cert, err := i.follow(ctx, api, request, limit, interrupt)
		if cert != nil || (err != nil && !again(err)) {
			return cert, err
		}
		// The watch ended, as watches do. What it did not tell is asked for.
		if err := pause(ctx, backoff.Next(), limit, interrupt); err != nil {
			return nil, err
		}
		request = &certificatesv1.CertificateSigningRequest{}
		if err := api.Get(ctx, apiclient.SigningRequests, "", name, request); err != nil {
			return nil, err
		}
	}
}

// again says that an error of a watch is one to watch again for.
func again(err error) bool {
	var refused *refusal
	return !errors.As(err, &refused) && !errors.Is(err, errNotIssued) && !errors.Is(err, errInterrupted) && !errors.Is(err, errGone) &&
		!apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
}

// judge answers the certificate of a request, nil while there is none.
func judge(request *certificatesv1.CertificateSigningRequest, uid types.UID) ([]byte, error) {
	if request.UID != uid {
		return nil, &refusal{request.Name, "somebody has replaced it"}
	}
	v := verdictOn(request)
	if v.refused != "" {
		return nil, &refusal{request.Name, v.refused}
	}
	if len(v.issued) == 0 {
		return nil, nil
	}
	return v.issued, nil
}

// follow watches one request until it comes to something or the watch ends.
func (i *issuer) follow(ctx context.Context, api signing, request *certificatesv1.CertificateSigningRequest, limit <-chan time.Time, interrupt <-chan struct{}) ([]byte, error) {
	name, uid := request.Name, request.UID
	w, err := api.Watch(ctx, apiclient.SigningRequests, "", metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: request.ResourceVersion,
	})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	patience := time.NewTimer(patience)
	defer patience.Stop()
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
			if cert, err := judge(now, uid); cert != nil || err != nil {
				return cert, err
			}
		case <-patience.C:
			i.tell(request)
		case <-limit:
			return nil, errNotIssued
		case <-interrupt:
			return nil, errInterrupted
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tell says what a request waits for; the log hears it once.
func (i *issuer) tell(request *certificatesv1.CertificateSigningRequest) {
	command := "kubectl certificate approve " + request.Name
	if i.waits != nil {
		i.waits("the certificate waits for approval: unless the cluster approves it by itself, run `" + command + "`")
	}
	if i.told == request.Name {
		return
	}
	i.told = request.Name
	i.log.Info("a certificate waits for approval: unless the cluster approves it by itself, run the command",
		"signer", request.Spec.SignerName, "command", command)
}

// pause waits for d, unless something else comes first. A limit or interrupt
// of nil never comes.
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
