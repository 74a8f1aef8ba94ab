package authn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/server/authn/cache"
)

const (
	// maxToken limits the data that is sent to the API server for an
	// unauthenticated client. A service account token has about 1 kB, the token of
	// a user with many groups somewhat more.
	maxToken = 16 << 10
	// maxReason limits the stored reason of a rejection.
	maxReason = 256
)

// ErrReview means that the API server could not review a token. The token may be
// valid.
var ErrReview = errors.New("cannot review bearer token")

// tokens authenticates bearer tokens by reviews of the API server.
type tokens struct {
	review  func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	answers *cache.Cache[reviewResult]
	hasher  *cache.Hasher
	outage  *apiclient.Outage
}

// reviewResult is the result of a review: the user, or the reason of the rejection.
type reviewResult struct {
	user   *User
	reason string
}

// bearerToken returns the token of an Authorization header, "" if there is none. As in
// k8s.io/apiserver (pkg/authentication/request/bearertoken) the scheme is
// case-insensitive, one space follows it, and text after the token is ignored.
func bearerToken(header string) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	token, _, _ := strings.Cut(rest, " ")
	return token
}

func (t *tokens) user(ctx context.Context, token string) (*User, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("review bearer token: size of %d bytes exceeds %d", len(token), maxToken)
	}
	got, yes, err := t.answers.Get(ctx, t.hasher.Key(token), func(ctx context.Context) (reviewResult, bool, error) {
		v, err := t.createReview(ctx, token)
		t.outage.Record(err)
		return v, v.user != nil, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrReview, err)
	case !yes:
		return nil, fmt.Errorf("bearer token rejected by API server: %s", got.reason)
	default:
		return got.user, nil
	}
}

func (t *tokens) createReview(ctx context.Context, token string) (reviewResult, error) {
	review, err := t.review(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if err != nil {
		return reviewResult{}, fmt.Errorf("create TokenReview: %w", err)
	}
	status := &review.Status
	if !status.Authenticated {
		return reviewResult{reason: reason(status.Error, token)}, nil
	}
	if status.User.Username == "" {
		return reviewResult{}, errors.New("create TokenReview: response authenticates the token but has no user name")
	}
	user := status.User // a copy, without the token of the review
	return reviewResult{user: authenticated(&user)}, nil
}

// reason returns the API server's reason of a rejection, without the token and
// shortened to maxReason bytes.
func reason(text, token string) string {
	switch {
	case text == "" || strings.Contains(text, token):
		return "no reason given"
	case len(text) > maxReason:
		return strings.ToValidUTF8(text[:maxReason], "") + "…"
	default:
		return text
	}
}
