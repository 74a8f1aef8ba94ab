// Package identity manages the node's credentials for the API server and for the clients
// of its own server: the kubeconfig, the client certificate and the serving certificate.
//
// The files are those of the kubelet, so that kubeadm and a stock kubelet can write
// them and take them over: a kubeconfig that points to
// pki/kubelet-client-current.pem, a symbolic link to a dated file with certificate
// and key (client-go's util/certificate/certificate_store.go), and a key whose
// certificate is pending in pki/kubelet-client.key.tmp
// (pkg/kubelet/certificate/bootstrap). A certificate is requested by a
// CertificateSigningRequest whose name is derived from its key and content, so that
// an agent that restarts while it waits finds its own request again.
//
// Pure functions decide the next step from the content of the files and the time.
// The decision is repeated whenever a file changes, the clock is set, or a
// certificate is due for renewal. Each file is replaced atomically and synced to
// the disk, the certificate before the kubeconfig: kubeadm waits for a kubeconfig whose
// files exist.
package identity
