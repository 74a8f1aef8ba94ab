// Package identity owns what the node is to its API server and to those who
// call it: the kubeconfig, the client certificate and the serving certificate.
//
// The files are the kubelet's own, so that kubeadm and a stock kubelet can
// write them and take them over: a kubeconfig that points to
// pki/kubelet-client-current.pem, a symbolic link to a dated file of
// certificate and key (client-go's util/certificate/certificate_store.go), and
// a key that waits for its certificate in pki/kubelet-client.key.tmp
// (pkg/kubelet/certificate/bootstrap). A certificate is asked for by a
// CertificateSigningRequest whose name follows from its key and content, so
// that an agent that died while it waited finds its own request again.
//
// What is to be done next is decided by pure functions from what the files
// hold and what time it is; it is decided anew whenever a file changes, the
// clock is set, or a certificate comes of age. Each file is replaced as a
// whole and down to the disk, certificate before kubeconfig: kubeadm waits for
// a kubeconfig whose files exist.
package identity
