// Package bootstrap discovers the cluster to join from a bootstrap token and the
// hash of the cluster's CA, and writes the bootstrap kubeconfig with which the node
// then requests its certificate.
//
// It follows kubeadm's token discovery (cmd/kubeadm/app/discovery/token). The
// ConfigMap kube-public/cluster-info is read without trust in the server. It is
// trusted if it is signed with the token's secret and if its CA has the hash that
// the operator gave. It is then read again from a server that this CA verifies.
package bootstrap
