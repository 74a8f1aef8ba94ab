package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// Timing of token renewal, as in the kubelet (pkg/kubelet/token).
const (
	// maxTokenAge is the age at which a token is renewed in any case.
	maxTokenAge = 24 * time.Hour
	// maxTokenJitter is the maximum jitter by which a token is renewed early.
	maxTokenJitter = 10 * time.Second
)

// tokenKey identifies one token.
type tokenKey struct {
	namespace, account, audience string
	pod                          string
	podUID                       types.UID
	seconds                      int64 // requested lifetime
}

type token struct {
	text    string
	expires time.Time // by the API server's clock
}

// Token returns a token of the pod's service account that is bound to the pod,
// and the expiration time that the API server set. It waits for the API server
// only if there is no valid token. A token with a fifth of its lifetime left,
// or a day old, is returned while another one is fetched.
func (o *Objects) Token(ctx context.Context, p *v1.Pod, audience string, expiration time.Duration) (string, time.Time, error) {
	k := tokenKey{
		namespace: p.Namespace, account: p.Spec.ServiceAccountName, audience: audience,
		pod: p.Name, podUID: p.UID, seconds: int64(expiration / time.Second),
	}
	if k.account == "" {
		return "", time.Time{}, errors.New("pod has no service account")
	}
	t, err := o.tokens.read(ctx, k)
	return t.text, t.expires, err
}

func (o *Objects) fetchToken(ctx context.Context, k tokenKey) (token, validity, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &k.seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: k.pod, UID: k.podUID},
	}}
	if k.audience != "" {
		request.Spec.Audiences = []string{k.audience}
	}
	asked := time.Now()
	into := new(authenticationv1.TokenRequest)
	if err := o.config.API.Create(ctx, apiclient.ServiceAccounts, k.namespace, k.account, "token", request, into); err != nil {
		return token{}, validity{}, fmt.Errorf("create token of service account %s/%s: %w", k.namespace, k.account, err)
	}
	if into.Status.Token == "" {
		return token{}, validity{}, fmt.Errorf("create token of service account %s/%s: empty token in response", k.namespace, k.account)
	}
	seconds := k.seconds
	if granted := into.Spec.ExpirationSeconds; granted != nil && *granted > 0 {
		seconds = *granted // the API server may grant another lifetime
	}
	if seconds <= 0 {
		return token{}, validity{}, fmt.Errorf("create token of service account %s/%s: lifetime of %d s", k.namespace, k.account, seconds)
	}
	const most = int64(1<<63-1) / int64(time.Second)
	life := time.Duration(min(seconds, most)) * time.Second
	return token{text: into.Status.Token, expires: into.Status.ExpirationTimestamp.Time}, tokenValidity(asked, life), nil
}

// tokenValidity returns when a token is renewed and when it expires. The lifetime
// counts from the time of the request by the local clock, which may differ from
// the API server's.
func tokenValidity(asked time.Time, life time.Duration) validity {
	jitter := min(maxTokenJitter, life/20)
	renew := min(life-life/5, maxTokenAge) - rand.N(jitter+1)
	return validity{fresh: asked.Add(renew), until: asked.Add(life)}
}
