package authz

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// Reviews sends TokenReviews and SubjectAccessReviews to the API server. Its methods return
// ErrNoCredentials instead of waiting for credentials, because a client of the kubelet API waits
// for the result.
type Reviews struct {
	// Client returns the current client, nil before the node has credentials.
	Client func() *apiclient.Client
}

// ErrNoCredentials means that the node has no credentials for its API server yet.
var ErrNoCredentials = errors.New("the node has no credentials for its API server yet")

// Token sends a TokenReview.
func (r Reviews) Token(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	return create(ctx, r, apiclient.TokenReviews, review, new(authenticationv1.TokenReview))
}

// Access sends a SubjectAccessReview.
func (r Reviews) Access(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	return create(ctx, r, apiclient.SubjectAccessReviews, review, new(authorizationv1.SubjectAccessReview))
}

func create[T runtime.Object](ctx context.Context, r Reviews, kind apiclient.Resource, review, result T) (T, error) {
	client := r.Client()
	if client == nil {
		var none T
		return none, ErrNoCredentials
	}
	return result, client.Create(ctx, kind, "", "", "", review, result)
}
