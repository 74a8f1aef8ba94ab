// Package authn owns who calls the node's HTTPS API: it turns a request into
// a user, as a kubelet does (cmd/kubelet/app/auth.go, and
// pkg/authentication of k8s.io/apiserver).
//
// A client certificate counts first, then a bearer token, and who shows
// neither is system:anonymous where that is allowed. Who shows something that
// does not hold is nobody, also where the anonymous are allowed.
//
// Certificates are judged anew at each request, by the client CA bundle as
// its file is now: a certificate that expires, or whose CA is taken from the
// bundle, loses its rights on a connection that is kept open too. Tokens are
// judged by the API server (TokenReview); its answers are kept for a while
// under a keyed hash, never with the token. Unlike with a kubelet, a token
// among the subprotocols of a WebSocket, which is how pages in a browser show
// theirs, counts for nothing.
package authn
