// Package bootstrap finds out which cluster a board is to belong to, from a
// bootstrap token and the hash of the cluster's CA, and writes the bootstrap
// kubeconfig that the node then asks for its certificate with.
//
// It follows kubeadm's token discovery (cmd/kubeadm/app/discovery/token): the
// ConfigMap kube-public/cluster-info is read without trust in the server, is
// trusted because the token's secret has signed it and because the CA in it
// has the hash that the operator was told, and is read again from a server
// that this CA vouches for.
package bootstrap
