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
	// maxToken bounds what is sent to the API server for a stranger. A token
	// of a service account has about 1 kB, of a user of many groups some more.
	maxToken = 16 << 10
	// maxReason bounds what is kept of the server's reason for a refusal.
	maxReason = 256
)

// ErrReview is what a token has that the API server could not be asked about.
// It may be good.
var ErrReview = errors.New("the token could not be reviewed")

// tokens judges bearer tokens by the API server.
type tokens struct {
	review  func(context.Context, *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error)
	answers *cache.Cache[verdict]
	hasher  *cache.Hasher
	outage  *apiclient.Outage
}

// verdict is what became of a token: its user, or why it is refused.
type verdict struct {
	user   *User
	reason string
}

// bearer is the token of an Authorization header, "" if there is none. As
// with k8s.io/apiserver (pkg/authentication/request/bearertoken) the scheme
// may be in any case, one space follows it, and what comes after the token is
// left out.
func bearer(header string) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	token, _, _ := strings.Cut(rest, " ")
	return token
}

// user answers whose token it is.
func (t *tokens) user(ctx context.Context, token string) (*User, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("bearer token: it has %d bytes, and more than %d are not reviewed", len(token), maxToken)
	}
	got, yes, err := t.answers.Get(ctx, t.hasher.Key(token), func(ctx context.Context) (verdict, bool, error) {
		v, err := t.ask(ctx, token)
		t.outage.Note(err)
		return v, v.user != nil, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrReview, err)
	case !yes:
		return nil, fmt.Errorf("bearer token: the API server does not accept it: %s", got.reason)
	default:
		return got.user, nil
	}
}

// ask has a token reviewed.
func (t *tokens) ask(ctx context.Context, token string) (verdict, error) {
	review, err := t.review(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if err != nil {
		return verdict{}, fmt.Errorf("create TokenReview: %w", err)
	}
	status := &review.Status
	if !status.Authenticated {
		return verdict{reason: reason(status.Error, token)}, nil
	}
	if status.User.Username == "" {
		return verdict{}, errors.New("create TokenReview: the answer names no user for a token that it finds good")
	}
	user := &User{Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups}
	if len(status.User.Extra) > 0 {
		user.Extra = make(map[string][]string, len(status.User.Extra))
		for key, values := range status.User.Extra {
			user.Extra[key] = values
		}
	}
	return verdict{user: user.authenticated()}, nil
}

// reason is what the server says of a token that it does not accept, without
// the token.
func reason(text, token string) string {
	switch {
	case text == "" || strings.Contains(text, token):
		return "it gives no reason"
	case len(text) > maxReason:
		return strings.ToValidUTF8(text[:maxReason], "") + "…"
	default:
		return text
	}
}
