package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// ErrAway is the error of reviews while the server is unavailable.
var ErrAway = errors.New("connection refused")

// Server serves TokenReviews and SubjectAccessReviews. The zero Server rejects all
// tokens and access. Its methods may be called concurrently.
type Server struct {
	mu     sync.Mutex
	tokens map[string]authenticationv1.UserInfo
	rights []right
	fails  error
	takes  time.Duration

	tokenReviews []string
	reviews      []string
}

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

// Allow allows a user or group a verb on subresources of nodes; "*" means any verb,
// or any subresource.
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

// Fail makes reviews return err; nil makes them succeed again.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// Take delays each review by d.
func (s *Server) Take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = d
}

// TokenReviews returns the reviewed tokens, in order.
func (s *Server) TokenReviews() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokenReviews)
}

// Reviews returns the access reviews, such as "admin get nodes/proxy", in order.
func (s *Server) Reviews() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reviews)
}

// TokenReview reviews a token like the API server.
func (s *Server) TokenReview(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokenReviews = append(s.tokenReviews, review.Spec.Token)
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	got := review.DeepCopy()
	if user, ok := s.tokens[review.Spec.Token]; ok {
		got.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: *user.DeepCopy()}
	} else {
		got.Status.Error = "[invalid bearer token, token lookup failed]"
	}
	return got, nil
}

// AccessReview reviews access like the API server.
func (s *Server) AccessReview(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec := &review.Spec
	at := spec.ResourceAttributes
	s.reviews = append(s.reviews, fmt.Sprintf("%s %s %s/%s", spec.User, at.Verb, at.Resource, at.Subresource))
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	got := review.DeepCopy()
	got.Status.Allowed = slices.Contains(spec.Groups, "system:masters") || slices.ContainsFunc(s.rights, func(r right) bool {
		return (r.who == spec.User || slices.Contains(spec.Groups, r.who)) &&
			(r.verb == "*" || r.verb == at.Verb) && (r.subresource == "*" || r.subresource == at.Subresource)
	})
	return got, nil
}

// wait blocks for the delay of Take without holding the lock, and returns the error
// of Fail.
func (s *Server) wait(ctx context.Context) error {
	fails, takes := s.fails, s.takes
	s.mu.Unlock()
	defer s.mu.Lock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fails
}
