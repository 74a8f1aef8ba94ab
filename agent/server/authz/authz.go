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

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authn/cache"
)

// Config configures an Authorizer.
type Config struct {
	// Mode is authorization.mode: AlwaysAllow allows all requests, any other mode
	// requests reviews from the API server.
	Mode kubelet.KubeletAuthorizationMode
	// NodeName is the node's name.
	NodeName string
	// Review creates a SubjectAccessReview on the API server and returns the
	// result. It must return when its context ends, and must not retry for long,
	// because requests block until it returns.
	Review func(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)
	// AllowedTTL is how long a positive decision is cached
	// (authorization.webhook.cacheAuthorizedTTL), DeniedTTL how long a negative
	// one is (cacheUnauthorizedTTL); 0 disables the cache.
	AllowedTTL, DeniedTTL time.Duration
	Log                   *slog.Logger
}

const (
	// reviewTimeout limits one review. It equals the timeout of a token review.
	reviewTimeout = 10 * time.Second
	// maxCachedDecisions limits the cached positive decisions, and the cached negative
	// ones. A node has few clients, each with two or three subresources.
	maxCachedDecisions = 256
	// maxConcurrentReviews limits the uplink traffic that unauthorized clients can cause.
	maxConcurrentReviews = 4
)

// Authorizer authorizes requests. Its methods may be called concurrently.
type Authorizer struct {
	config    Config
	decisions *cache.Cache[struct{}] // nil allows everything
	hasher    *cache.Hasher
	outage    *apiclient.Outage
}

// New returns an Authorizer. It starts nothing.
func New(c Config) *Authorizer {
	if c.Mode == kubelet.KubeletAuthorizationModeAlwaysAllow {
		return &Authorizer{config: c}
	}
	decisions := cache.New[struct{}](cache.Config{
		PositiveTTL: c.AllowedTTL, NegativeTTL: c.DeniedTTL, Size: maxCachedDecisions, Timeout: reviewTimeout, Concurrency: maxConcurrentReviews,
	})
	return &Authorizer{
		config: c, decisions: decisions, hasher: cache.NewHasher(),
		outage: apiclient.NewOutage(c.Log, "cannot review client access, using cached decisions",
			"reviewing client access again"),
	}
}

// ReviewError is the error of a review without a decision.
type ReviewError struct {
	// Subresource is the reviewed subresource.
	Subresource string
	// Unavailable means that the API server did not respond or that its error is
	// temporary: the client can retry. Otherwise it rejected the review, or its response
	// is contradictory.
	Unavailable bool
	Err         error
}

// Error returns the subresource and the cause.
func (e *ReviewError) Error() string {
	return fmt.Sprintf("review access to nodes/%s: %v", e.Subresource, e.Err)
}

// Unwrap returns the cause.
func (e *ReviewError) Unwrap() error { return e.Err }

// Allowed reports whether a user has access with a verb (see Verb) to one of the node's
// subresources (see Subresources). It first checks the cache for an allowed subresource,
// and then gets a decision for each in order, cached or by a review: so a cached
// permission is used even if a finer subresource cannot be reviewed. It blocks during
// reviews, for at most 10 s each. If ctx ends, it returns only if it waits for the review
// of another request (see cache.Cache.Get and cache.WithBase). Every error is a
// *ReviewError, and means that the request is not allowed.
func (a *Authorizer) Allowed(ctx context.Context, u *authn.User, verb string, subresources []string) (bool, error) {
	if a.decisions == nil {
		return true, nil
	}
	who := a.userKey(u)
	for _, subresource := range subresources {
		if _, yes, _ := a.decisions.GetCached(a.key(who, verb, subresource)); yes {
			return true, nil
		}
	}
	for _, subresource := range subresources {
		_, yes, err := a.decisions.Get(ctx, a.key(who, verb, subresource), func(ctx context.Context) (struct{}, bool, error) {
			yes, err := a.review(ctx, u, verb, subresource)
			a.outage.Record(err)
			return struct{}{}, yes, err
		})
		switch {
		case err != nil:
			return false, &ReviewError{Subresource: subresource, Unavailable: isUnavailable(err), Err: err}
		case yes:
			return true, nil
		}
	}
	return false, nil
}

func (a *Authorizer) review(ctx context.Context, u *authn.User, verb, subresource string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: a.config.NodeName,
		},
	}}
	review.Spec.Extra = make(map[string]authorizationv1.ExtraValue, len(u.Extra))
	for key, values := range u.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := a.config.Review(ctx, review)
	if err != nil {
		return false, fmt.Errorf("create SubjectAccessReview: %w", err)
	}
	if review.Status.Allowed && review.Status.Denied {
		return false, errContradictory
	}
	return review.Status.Allowed, nil
}

var errContradictory = errors.New("create SubjectAccessReview: response both allows and denies")

// isUnavailable reports whether a review failed because the API server did not respond, or
// responded with a retriable status.
func isUnavailable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, errContradictory)
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}

// userKey returns a hash of all user attributes of a review, so that a change of a user's
// groups takes effect at once.
func (a *Authorizer) userKey(u *authn.User) string {
	parts := make([]string, 0, 3+len(u.Groups)+4*len(u.Extra))
	parts = append(parts, u.Username, u.UID, strconv.Itoa(len(u.Groups)))
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
