// Package apiobjects reads the objects that pods reference from an API server.
// It provides an objects.Reader whose ConfigMaps and Secrets are watched while
// a pod references them. Other objects, tokens and trust bundles are fetched on
// read and cached.
//
// It makes only requests that the API server grants to a node (the role
// system:node and the node authorizer, plugin/pkg/auth/authorizer): lists and
// watches of ConfigMaps and Secrets by one name each, gets of claims, volumes
// and runtime classes, lists of services and trust bundles, and tokens bound to
// a pod of the node. The semantics are those of the kubelet's watch based
// manager (pkg/kubelet/util/manager), its tokens (pkg/kubelet/token) and its
// trust bundles (pkg/kubelet/clustertrustbundle), with one exception: while the
// API server is unreachable, the last known answer is returned, also for
// claims, volumes and services. A node may have no uplink for days, and a
// crashed container must restart nevertheless.
//
// The package has its own watches. With 50 watched ConfigMaps of a few bytes on
// one connection (amd64), one of them costs 11 kB of heap, 12 kB of stacks and
// 3 goroutines, of which 8 kB, 9 kB and 2 belong to the connection. With
// client-go's Reflector and a store it costs 12 kB, 25 kB and 4.
package apiobjects
