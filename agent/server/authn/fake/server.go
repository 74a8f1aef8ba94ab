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

// ErrAway is what reviews fail with while the server is away.
var ErrAway = errors.New("connection refused")

// Server reviews tokens and rights. The zero Server knows nobody. All methods
// may be called at once.
type Server struct {
	mu     sync.Mutex
	tokens map[string]authenticationv1.UserInfo
	rights []right
	fails  error
	takes  time.Duration

	tokenReviews []string
	reviews      []string
}

// right is what a user or a group may do with a node.
type right struct{ who, verb, subresource string }

// Grant has a token be that of a user.
func (s *Server) Grant(token, user string, groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil {
		s.tokens = map[string]authenticationv1.UserInfo{}
	}
	s.tokens[token] = authenticationv1.UserInfo{Username: user, UID: "uid-of-" + user, Groups: groups}
}

// Revoke has a token be nobody's.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, token)
}

// Allow lets a user or a group do something with the subresources of a node;
// "*" is any verb, or any subresource.
func (s *Server) Allow(who, verb string, subresources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subresource := range subresources {
		s.rights = append(s.rights, right{who, verb, subresource})
	}
}

// Forbid takes all rights of a user or a group.
func (s *Server) Forbid(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rights = slices.DeleteFunc(s.rights, func(r right) bool { return r.who == who })
}

// Fail has reviews fail; nil has them succeed again.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// Take has each review take its time.
func (s *Server) Take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = d
}

// TokenReviews are the tokens that were reviewed, in order.
func (s *Server) TokenReviews() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokenReviews)
}

// Reviews are the rights that were asked for, such as "admin get
// nodes/proxy", in order.
func (s *Server) Reviews() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reviews)
}

// TokenReview reviews a token, as the API server does.
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

// AccessReview reviews a right, as the API server does.
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

// wait takes the review's time without the lock.
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
