// Package podnet owns the network of the pods on one node: a bridge, and for each pod
// a veth pair, addresses, default routes, host ports and bandwidth limits. It calls
// net/link, net/ipam and net/nft in the right order. The lease of each pod records
// what is created for it, so that a later call can remove or complete what an
// interrupted call has left.
//
// The lease is allocated before anything is created, and released after everything is
// removed. What the kernel has without a lease is an orphan, and Collect removes it.
//
// It knows no Kubernetes: a pod is an ID, a network namespace and names for people.
package podnet
