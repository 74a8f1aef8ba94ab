// Package apiobjects answers what pods refer to from an API server: an
// object.Reader whose ConfigMaps and Secrets are watched while a pod refers to
// them, and whose other objects, tokens and trust anchors are fetched when
// somebody reads them and kept for a while.
//
// What the server is asked is what it grants a node (the role system:node and
// the node authorizer, plugin/pkg/auth/authorizer): lists and watches of
// ConfigMaps and Secrets by one name each, gets of claims, volumes and runtime
// classes, lists of services and trust bundles, tokens that are bound to a pod
// of the node. The semantics are those of the kubelet's watch based manager
// (pkg/kubelet/util/manager), of its tokens (pkg/kubelet/token) and of its
// trust bundles (pkg/kubelet/clustertrustbundle), but for this: what was
// answered once is answered while the server cannot be reached, claims,
// volumes and services too. A board may have no uplink for days, and a
// container that crashed starts again all the same.
//
// The watches are this package's own: with 50 watched ConfigMaps of a few bytes
// on one connection (amd64), one costs 11 kB of heap, 12 kB of stacks and 3
// goroutines, of which 8 kB, 9 kB and 2 are the connection's; with client-go's
// Reflector and a store it costs 12 kB, 25 kB and 4.
package apiobjects
