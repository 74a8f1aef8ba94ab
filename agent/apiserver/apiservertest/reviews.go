package apiservertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// ErrAway is the error of requests to a server that is unavailable.
var ErrAway = errors.New("connection refused")

// right allows a user or group a verb on a subresource of nodes.
type right struct{ who, verb, subresource string }

// Grant makes token authenticate as user.
func (s *Server) Grant(token, user string, groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil {
		s.tokens = map[string]authenticationv1.UserInfo{}
	}
	s.tokens[token] = authenticationv1.UserInfo{Username: user, UID: "uid-of-" + user, Groups: groups}
}

// Revoke makes token invalid.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, token)
}

// Allow makes access reviews allow a user or group a verb on subresources of nodes; "*"
// means any verb, or any subresource.
func (s *Server) Allow(who, verb string, subresources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subresource := range subresources {
		s.rights = append(s.rights, right{who, verb, subresource})
	}
}

// Forbid removes all rights of a user or group.
func (s *Server) Forbid(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rights = slices.DeleteFunc(s.rights, func(r right) bool { return r.who == who })
}

// TokenReviews returns the reviewed tokens, in order.
func (s *Server) TokenReviews() []string {
	var tokens []string
	for _, c := range s.Calls() {
		if review, ok := c.Object.(*authenticationv1.TokenReview); ok {
			tokens = append(tokens, review.Spec.Token)
		}
	}
	return tokens
}

// Reviews returns the access reviews, such as "admin get nodes/proxy", in order.
func (s *Server) Reviews() []string {
	var reviews []string
	for _, c := range s.Calls() {
		if review, ok := c.Object.(*authorizationv1.SubjectAccessReview); ok {
			at := review.Spec.ResourceAttributes
			reviews = append(reviews, fmt.Sprintf("%s %s %s/%s", review.Spec.User, at.Verb, at.Resource, at.Subresource))
		}
	}
	return reviews
}

// TokenReview creates a TokenReview.
func (s *Server) TokenReview(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	out := new(authenticationv1.TokenReview)
	return out, s.Create(ctx, apiclient.TokenReviews, "", "", "", review, out)
}

// AccessReview creates a SubjectAccessReview.
func (s *Server) AccessReview(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	out := new(authorizationv1.SubjectAccessReview)
	return out, s.Create(ctx, apiclient.SubjectAccessReviews, "", "", "", review, out)
}

// reviewToken sets the status of a review. The caller holds the lock.
func (s *Server) reviewToken(review *authenticationv1.TokenReview) {
	if user, ok := s.tokens[review.Spec.Token]; ok {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: *user.DeepCopy()}
	} else {
		review.Status.Error = "[invalid bearer token, token lookup failed]"
	}
}

// reviewAccess sets the status of a review. The caller holds the lock.
func (s *Server) reviewAccess(review *authorizationv1.SubjectAccessReview) {
	spec, at := &review.Spec, review.Spec.ResourceAttributes
	review.Status.Allowed = slices.Contains(spec.Groups, "system:masters") || slices.ContainsFunc(s.rights, func(r right) bool {
		return (r.who == spec.User || slices.Contains(spec.Groups, r.who)) &&
			(r.verb == "*" || r.verb == at.Verb) && (r.subresource == "*" || r.subresource == at.Subresource)
	})
}
