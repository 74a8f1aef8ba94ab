// Package authz owns what those who call the node's HTTPS API may do: which
// right a request needs, whether the user has it, and what is answered where
// not.
//
// A request needs a right to a subresource of its own Node, as with a kubelet
// (pkg/kubelet/server/auth.go of Kubernetes 1.36, and KEP-2862 for the
// subresources that are finer than proxy). The API server decides
// (SubjectAccessReview), and what it decided holds for a while, also when it
// is away; then nobody may do anything until it answers again. What it has
// not decided is never guessed.
//
// Guard stands in front of the API's handler and lets through only what has
// its right.
package authz
