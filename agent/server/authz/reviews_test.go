package authz

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

// Before a node has joined it can ask nobody, and lets nobody in for it.
func TestReviewsWithoutCredentials(t *testing.T) {
	r := Reviews{Client: func() *apiclient.Client { return nil }}
	if got, err := r.Token(t.Context(), &authenticationv1.TokenReview{}); got != nil || !errors.Is(err, ErrNoCredentials) {
		t.Errorf("who calls: %+v, %v", got, err)
	}
	if got, err := r.Access(t.Context(), &authorizationv1.SubjectAccessReview{}); got != nil || !errors.Is(err, ErrNoCredentials) {
		t.Errorf("what they may: %+v, %v", got, err)
	}
}

func TestReviews(t *testing.T) {
	api := apiservertest.New()
	api.Grant("token", "ann")
	client := api.Dial(t, apiclient.Config{})
	r := Reviews{Client: func() *apiclient.Client { return client }}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "token"}}
	if got, err := r.Token(t.Context(), review); err != nil || got.Status.User.Username != "ann" {
		t.Errorf("who calls: %+v, %v", got, err)
	}
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		Groups: []string{"system:masters"}, ResourceAttributes: &authorizationv1.ResourceAttributes{},
	}}
	if got, err := r.Access(t.Context(), access); err != nil || !got.Status.Allowed {
		t.Errorf("what they may: %+v, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Access(ended, &authorizationv1.SubjectAccessReview{}); !errors.Is(err, context.Canceled) {
		t.Errorf("for a caller who has left: %v", err)
	}
}
