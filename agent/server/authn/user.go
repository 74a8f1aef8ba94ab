package authn

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Names of Kubernetes' built-in users and groups (pkg/authentication/user of
// k8s.io/apiserver).
const (
	// Anonymous is the user name of requests without credentials.
	Anonymous = "system:anonymous"
	// Unauthenticated is the group of requests without credentials.
	Unauthenticated = "system:unauthenticated"
	// Authenticated is the group of all other requests.
	Authenticated = "system:authenticated"
)

// credentialID is the key of Extra that identifies the credential of the request.
const credentialID = "authentication.kubernetes.io/credential-id"

// User is the user of a request. Requests share a value: it must not be changed. Its name is
// never empty, and its groups include Authenticated or Unauthenticated.
type User = authenticationv1.UserInfo

// anonymous is the user of a request without credentials.
var anonymous = &User{Username: Anonymous, Groups: []string{Unauthenticated}}

// authenticated adds the group Authenticated, unless the user's name is Anonymous or
// its groups already include Authenticated or Unauthenticated
// (pkg/authentication/group).
func authenticated(u *User) *User {
	if u.Username != Anonymous && !slices.Contains(u.Groups, Authenticated) && !slices.Contains(u.Groups, Unauthenticated) {
		u.Groups = append(slices.Clip(u.Groups), Authenticated)
	}
	return u
}

type userKey struct{}

// WithUser returns ctx with the user of a request.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom returns the user in a request's context, for logs and responses; nil if the
// request was not authenticated.
func UserFrom(ctx context.Context) *User {
	u, _ := ctx.Value(userKey{}).(*User)
	return u
}
