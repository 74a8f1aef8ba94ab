// Package podnet owns the network of the pods on one node: a bridge, a pair of
// virtual interfaces for each pod, its addresses, its way to the world, its
// ports on the host and its bandwidth. It puts net/link, net/ipam and net/nft
// in order and remembers what it has made in the lease of each pod, so that
// whatever was broken off halfway can be taken down or mended by who comes
// next.
//
// The order is the same everywhere: the lease is taken before anything is
// made and given back after everything is gone. What the kernel has without a
// lease belongs to nobody and goes with Collect.
//
// It knows no Kubernetes: a pod is an ID, a network namespace and some names
// for people.
package podnet
