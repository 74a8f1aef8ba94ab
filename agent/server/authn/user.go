package authn

import (
	"context"
	"slices"
)

// The names that Kubernetes gives to users and groups of its own
// (pkg/authentication/user of k8s.io/apiserver).
const (
	// Anonymous is the name of who shows no credentials.
	Anonymous = "system:anonymous"
	// Unauthenticated is the group of who shows no credentials.
	Unauthenticated = "system:unauthenticated"
	// Authenticated is the group of everybody else.
	Authenticated = "system:authenticated"
)

// credentialID is the key of Extra that says which credential was shown.
const credentialID = "authentication.kubernetes.io/credential-id"

// User is who a request comes from. One value serves many requests: it must
// not be changed.
type User struct {
	// Name is never empty.
	Name string
	// UID tells users of one name apart; "" where nobody knows.
	UID string
	// Groups are what the user belongs to, Authenticated or Unauthenticated
	// among them.
	Groups []string
	// Extra is what else the authenticator says, for the authorizer.
	Extra map[string][]string
}

// nobody is who shows no credentials.
var nobody = &User{Name: Anonymous, Groups: []string{Unauthenticated}}

// authenticated adds the group of all who have shown credentials, unless the
// user is named as one who has not, or its groups say already
// (pkg/authentication/group).
func (u *User) authenticated() *User {
	if u.Name != Anonymous && !slices.Contains(u.Groups, Authenticated) && !slices.Contains(u.Groups, Unauthenticated) {
		u.Groups = append(slices.Clip(u.Groups), Authenticated)
	}
	return u
}

type userKey struct{}

// With is ctx with the user whose request it belongs to.
func With(ctx context.Context, u *User) context.Context { return context.WithValue(ctx, userKey{}, u) }

// From is the user of a request's context, for logs and answers; nil where
// nobody was asked.
func From(ctx context.Context) *User {
	u, _ := ctx.Value(userKey{}).(*User)
	return u
}
