package authz

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
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
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		switch r.Method + " " + r.URL.Path {
		case "POST /apis/authentication.k8s.io/v1/tokenreviews":
			_, _ = w.Write([]byte(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"ann"}}}`))
		case "POST /apis/authorization.k8s.io/v1/subjectaccessreviews":
			_, _ = w.Write([]byte(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`))
		default:
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
	}))
	defer s.Close()
	client, err := apiclient.New(apiclient.Config{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Reconnect()
	r := Reviews{Client: func() *apiclient.Client { return client }}
	if got, err := r.Token(t.Context(), &authenticationv1.TokenReview{}); err != nil || got.Status.User.Username != "ann" {
		t.Errorf("who calls: %+v, %v", got, err)
	}
	if got, err := r.Access(t.Context(), &authorizationv1.SubjectAccessReview{}); err != nil || !got.Status.Allowed {
		t.Errorf("what they may: %+v, %v", got, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Access(ended, &authorizationv1.SubjectAccessReview{}); !errors.Is(err, context.Canceled) {
		t.Errorf("for a caller who has left: %v", err)
	}
}
