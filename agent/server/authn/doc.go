// Package authn authenticates clients of the kubelet's HTTPS API: it maps a request
// to a user, like the kubelet (cmd/kubelet/app/auth.go, and pkg/authentication of
// k8s.io/apiserver).
//
// It checks the client certificate first, then the bearer token. A request with
// neither is system:anonymous if anonymous requests are enabled. A request with
// invalid credentials is rejected, even if anonymous requests are enabled.
//
// Certificates are verified with each request, against the current client CA
// bundle: a certificate that expires, or whose CA is removed from the bundle, is
// rejected on open connections too. Tokens are reviewed by the API server
// (TokenReview). Results are cached for a limited time under a keyed hash, never
// with the token. Unlike in the kubelet, a token in the subprotocols of a WebSocket,
// which browsers use, is ignored.
package authn
