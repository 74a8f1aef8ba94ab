package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authn/cache"
)

// Config says who decides.
type Config struct {
	// Mode is authorization.mode: Webhook asks the API server, AlwaysAllow
	// lets everybody do everything.
	Mode kubelet.KubeletAuthorizationMode
	// NodeName is the node's name.
	NodeName string
	// Review creates a SubjectAccessReview at the API server and answers what
	// became of it. It must end with its context, and must not retry for
	// long: those who wait for it are waiting for an answer to their request.
	Review func(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
	// AllowedTTL is how long what was allowed stays allowed
	// (authorization.webhook.cacheAuthorizedTTL), and DeniedTTL how long what
	// was not stays so (cacheUnauthorizedTTL); 0 asks each time.
	AllowedTTL, DeniedTTL time.Duration
	// ReviewTimeout is how long a review may take; 0 is 10 s.
	ReviewTimeout time.Duration
	Log           *slog.Logger
}

const (
	// defaultTimeout is as long as that of a review of a token.
	defaultTimeout = 10 * time.Second
	// knownDecisions is how many rights that somebody has, and how many that
	// somebody has not, are known at a time. A node is called by few, each of
	// whom needs two or three rights.
	knownDecisions = 256
	// reviewsAtOnce bounds what strangers can have sent over the uplink.
	reviewsAtOnce = 4
)

// Authorizer decides what users may do. All methods may be called at once.
type Authorizer struct {
	config    Config
	decisions *cache.Cache[struct{}] // nil allows everything
	hasher    *cache.Hasher
	outage    *apiclient.Outage
}

// New checks the configuration; nothing is started.
func New(c Config) (*Authorizer, error) {
	switch c.Mode {
	case kubelet.KubeletAuthorizationModeAlwaysAllow:
		return &Authorizer{config: c}, nil
	case kubelet.KubeletAuthorizationModeWebhook:
	default:
		return nil, fmt.Errorf("authorize clients: authorization.mode is %q, and has to be %s or %s",
			c.Mode, kubelet.KubeletAuthorizationModeWebhook, kubelet.KubeletAuthorizationModeAlwaysAllow)
	}
	if c.Review == nil || c.NodeName == "" {
		return nil, errors.New("authorize clients: a review and a node's name are needed")
	}
	if c.ReviewTimeout == 0 {
		c.ReviewTimeout = defaultTimeout
	}
	decisions, err := cache.New[struct{}](cache.Config{
		Yes: c.AllowedTTL, No: c.DeniedTTL, Size: knownDecisions, Timeout: c.ReviewTimeout, AtOnce: reviewsAtOnce,
	})
	if err != nil {
		return nil, fmt.Errorf("authorize clients: %w", err)
	}
	return &Authorizer{
		config: c, decisions: decisions, hasher: cache.NewHasher(),
		outage: apiclient.NewOutage(c.Log, "clients' rights cannot be reviewed: only what was decided lately holds",
			"clients' rights are reviewed again"),
	}, nil
}

// ReviewError is a right that the API server did not decide on.
type ReviewError struct {
	// Subresource is what the right is to.
	Subresource string
	// Away says that the server gave no answer, so that it makes sense to ask
	// again; otherwise it refused to review, or its answer makes no sense.
	Away bool
	Err  error
}

// Error says which right it was, and why there is no decision.
func (e *ReviewError) Error() string {
	return fmt.Sprintf("review the right to nodes/%s: %v", e.Subresource, e.Err)
}

// Unwrap is the cause.
func (e *ReviewError) Unwrap() error { return e.Err }

// Allowed decides whether a user may do something (a Verb) with one of the
// node's Subresources. What is known is looked at first, and then the first
// is asked for whose answer is not known, in their order: so what was allowed
// lately holds also where a finer right could not be asked for. It blocks
// while the API server is asked, until ctx ends or the review's time is over.
// Every error is a *ReviewError, and means that the user may not.
func (a *Authorizer) Allowed(ctx context.Context, u *authn.User, verb string, subresources []string) (bool, error) {
	if a.decisions == nil {
		return true, nil
	}
	who := a.who(u)
	for _, subresource := range subresources {
		if _, yes, _ := a.decisions.Recall(a.key(who, verb, subresource)); yes {
			return true, nil
		}
	}
	for _, subresource := range subresources {
		_, yes, err := a.decisions.Get(ctx, a.key(who, verb, subresource), func(ctx context.Context) (struct{}, bool, error) {
			yes, err := a.ask(ctx, u, verb, subresource)
			a.outage.Note(err)
			return struct{}{}, yes, err
		})
		switch {
		case err != nil:
			return false, &ReviewError{Subresource: subresource, Away: away(err), Err: err}
		case yes:
			return true, nil
		}
	}
	return false, nil
}

// ask has a right reviewed.
func (a *Authorizer) ask(ctx context.Context, u *authn.User, verb, subresource string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: a.config.NodeName,
		},
	}}
	if len(u.Extra) > 0 {
		review.Spec.Extra = make(map[string]authorizationv1.ExtraValue, len(u.Extra))
		for key, values := range u.Extra {
			review.Spec.Extra[key] = values
		}
	}
	review, err := a.config.Review(ctx, review)
	if err != nil {
		return false, fmt.Errorf("create SubjectAccessReview: %w", err)
	}
	if review.Status.Allowed && review.Status.Denied {
		return false, errNonsense
	}
	return review.Status.Allowed, nil
}

var errNonsense = errors.New("create SubjectAccessReview: the answer both allows and denies")

// away says whether a review failed because the server gave no answer, or one
// that says to ask again later.
func away(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, errNonsense)
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}

// who stands for all that the API server is told of a user, so that one whose
// groups change has other rights at once.
func (a *Authorizer) who(u *authn.User) string {
	parts := make([]string, 0, 3+len(u.Groups)+4*len(u.Extra))
	parts = append(parts, u.Name, u.UID, strconv.Itoa(len(u.Groups)))
	parts = append(parts, u.Groups...)
	for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
		parts = append(parts, key, strconv.Itoa(len(u.Extra[key])))
		parts = append(parts, u.Extra[key]...)
	}
	key := a.hasher.Key(parts...)
	return string(key[:])
}

func (a *Authorizer) key(who, verb, subresource string) cache.Key {
	return a.hasher.Key(who, verb, subresource)
}
