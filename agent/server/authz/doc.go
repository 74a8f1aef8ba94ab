// Package authz authorizes requests to the kubelet's HTTPS API: it determines the
// access that a request requires, checks whether the user has it, and sends the
// response if not.
//
// A request requires access to a subresource of this Node, as in the kubelet
// (pkg/kubelet/server/auth.go of Kubernetes 1.36, and KEP-2862 for the subresources
// that are finer than proxy). The API server decides (SubjectAccessReview). Decisions
// are cached for a limited time, also while the API server is unavailable. Without a
// decision a request is rejected.
//
// Guard is an http.Handler that passes only authorized requests to the handler of the
// API.
package authz
