package bootstrap

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// The ConfigMap cluster-info, which is readable without credentials
// (k8s.io/cluster-bootstrap/token/api).
const (
	infoNamespace   = "kube-public"
	infoName        = "cluster-info"
	infoKey         = "kubeconfig"
	signaturePrefix = "jws-kubeconfig-"
)

// requestLimit is the time limit for one read of cluster-info. A link of 1 kB/s takes
// 10 s.
const requestLimit = time.Minute

// Options are the operator's inputs for Join.
type Options struct {
	// Server is the API server's URL.
	Server string
	// Token is a bootstrap token: ID and secret.
	Token string
	// CAHashes are hashes of the cluster's CA; one must match.
	CAHashes []string
	// UnsafeSkipCAVerification trusts any CA that is signed with the token. Every
	// node that ever joined with the token can then impersonate the API server.
	UnsafeSkipCAVerification bool
	// Force joins even if the node has a kubeconfig, which is removed, whatever its
	// cluster and content.
	Force bool
	// Kubeconfig is the path of the node's kubeconfig.
	Kubeconfig string
	// BootstrapKubeconfig and CAFile are the paths of the files to write.
	BootstrapKubeconfig, CAFile string
	// UserAgent identifies the node in the logs of the API server.
	UserAgent string
}

// Result describes the cluster to join.
type Result struct {
	// Server is the URL that was written, as given in Options.
	Server string `json:"server"`
	// Advertised is the URL in the cluster's own cluster-info. It may differ from
	// Server behind a load balancer or NAT.
	Advertised string `json:"advertised,omitempty"`
	// CAHash is the hash of the trusted CA.
	CAHash string `json:"caHash"`
	// AlreadyJoined means that the node has a kubeconfig of this cluster with a client
	// certificate that has not expired; nothing was written.
	AlreadyJoined bool `json:"already"`
}

// Join discovers the cluster and writes the files. It reads cluster-info twice, at most
// a minute each, and does not repeat a failed read. Its errors state the cause and, if
// known, the remedy.
func Join(ctx context.Context, o Options) (Result, error) {
	token, err := ParseToken(o.Token)
	if err != nil {
		return Result{}, err
	}
	pins, err := pinsOf(&o)
	if err != nil {
		return Result{}, err
	}
	info, err := discover(ctx, &o, token, pins)
	if err != nil {
		return Result{}, err
	}
	result := Result{Server: o.Server, Advertised: info.server, CAHash: pinOf(info.authority).String()}
	if result.AlreadyJoined, err = checkExisting(&o, info); err != nil || result.AlreadyJoined {
		return result, err
	}
	return result, write(&o, token, info)
}

func pinsOf(o *Options) ([]pin, error) {
	var pins []pin
	for _, s := range o.CAHashes {
		p, err := parsePin(s)
		if err != nil {
			return nil, err
		}
		pins = append(pins, p)
	}
	switch {
	case len(pins) == 0 && !o.UnsafeSkipCAVerification:
		return nil, errors.New("--ca-cert-hash sha256:… is required: without it, anybody who ever had the token" +
			" can impersonate the API server; `kubeadm token create --print-join-command` prints the hash," +
			" and --unsafe-skip-ca-verification joins without it")
	case len(pins) > 0 && o.UnsafeSkipCAVerification:
		return nil, errors.New("--ca-cert-hash and --unsafe-skip-ca-verification are mutually exclusive")
	}
	return pins, nil
}

// cluster is the result of the discovery.
type cluster struct {
	server    string // the URL in cluster-info
	ca        []byte // PEM
	authority *x509.Certificate
	// listed are all certificates in cluster-info, also those that are not pinned.
	// While the CA is rotated there are several.
	listed []*x509.Certificate
}

// discover reads cluster-info twice: first without trust in the server, then with
// the CA in it.
func discover(ctx context.Context, o *Options, token Token, pins []pin) (*cluster, error) {
	untrusted, err := fetch(ctx, o, token, nil)
	if err != nil {
		return nil, err
	}
	info, err := parseInfo(untrusted)
	if err != nil {
		return nil, err
	}
	all, err := cert.ParseCertsPEM(info.ca)
	if err != nil {
		return nil, fmt.Errorf("read CA in ConfigMap %s/%s: %w", infoNamespace, infoName, err)
	}
	info.listed = all
	if len(pins) > 0 {
		if all, err = pinned(all, pins); err != nil {
			return nil, err
		}
		if info.ca, err = cert.EncodeCertificates(all...); err != nil {
			return nil, fmt.Errorf("encode the cluster's CA: %w", err)
		}
	}
	info.authority = all[0]
	trusted, err := fetch(ctx, o, token, info.ca)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(untrusted, trusted) {
		return nil, fmt.Errorf("ConfigMap %s/%s differed on the second read: it has just changed, or something between"+
			" this node and the API server modifies it; try again", infoNamespace, infoName)
	}
	return info, nil
}

// fetch reads the kubeconfig in cluster-info and verifies its signature with the
// token. With a nil CA, the server is not verified.
func fetch(ctx context.Context, o *Options, token Token, ca []byte) ([]byte, error) {
	client, err := apiclient.New(apiclient.Config{Server: o.Server, CA: ca, Insecure: ca == nil, UserAgent: o.UserAgent})
	if err != nil {
		return nil, err
	}
	defer client.Reconnect() // closes the connection
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	var info v1.ConfigMap
	if err := client.Get(ctx, apiclient.ConfigMaps, infoNamespace, infoName, &info); err != nil {
		return nil, remedy(o.Server, ca != nil, err)
	}
	kubeconfig := info.Data[infoKey]
	if kubeconfig == "" {
		return nil, fmt.Errorf("ConfigMap %s/%s contains no kubeconfig: the cluster is not set up for joining by token"+
			" (run `kubeadm init phase bootstrap-token`)", infoNamespace, infoName)
	}
	signature := info.Data[signaturePrefix+token.ID]
	if signature == "" {
		return nil, fmt.Errorf("token %s is unknown to the cluster, or it has expired, or it is not usable for signing:"+
			" create one with `kubeadm token create`; a new token takes effect after some seconds", token)
	}
	if err := verify(signature, []byte(kubeconfig), token); err != nil {
		if errors.Is(err, errSignature) {
			return nil, fmt.Errorf("the secret of the token %s is not the cluster's:"+
				" the token is mistyped, or something impersonates the API server", token)
		}
		return nil, fmt.Errorf("verify ConfigMap %s/%s with token %s: %w", infoNamespace, infoName, token, err)
	}
	return []byte(kubeconfig), nil
}

// remedy adds the remedy to an error of a request.
func remedy(server string, trusted bool, err error) error {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of %s is for another name: use a name in the certificate, or add this name to it"+
			" (apiServer.certSANs of kubeadm): %w", server, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s is not valid at this time: is this node's clock right (%s)? %w",
			server, time.Now().UTC().Format(time.RFC3339), err)
	case trusted && (errors.As(err, &unknown) || errors.As(err, &invalid)):
		return fmt.Errorf("the certificate of %s is not signed by the cluster's CA: something impersonates"+
			" the API server: %w", server, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s is not an API server, or its cluster is not set up for joining by token"+
			" (no ConfigMap %s/%s): %w", server, infoNamespace, infoName, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s denies anonymous access to ConfigMap %s/%s: anonymous requests are disabled, or the role"+
			" kubeadm:bootstrap-signer-clusterinfo is missing: %w", server, infoNamespace, infoName, err)
	case errors.As(err, &status) && status.Status().Reason != "" && !strings.Contains(status.Status().Message, "unknown"):
		return fmt.Errorf("%s: %w", server, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s: is the address right, and is it reachable from this node? %w", server, requestLimit, err)
	}
	return fmt.Errorf("%s cannot be reached, or is not an API server: is the address right (https://<host>:6443)? %w", server, err)
}

// parseInfo parses the kubeconfig in cluster-info, which has one unnamed cluster
// and no user.
func parseInfo(data []byte) (*cluster, error) {
	raw, err := identity.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("parse kubeconfig in ConfigMap %s/%s: %w", infoNamespace, infoName, err)
	}
	if len(raw.Clusters) != 1 {
		return nil, fmt.Errorf("kubeconfig in ConfigMap %s/%s: want 1 cluster, found %d", infoNamespace, infoName, len(raw.Clusters))
	}
	c := &raw.Clusters[0].Cluster
	return &cluster{server: c.Server, ca: c.CertificateAuthorityData}, nil
}

// checkExisting reports whether the node has a kubeconfig of the cluster with a client
// certificate that has not expired: both CAs have a certificate of the same key. It
// returns an error if the node's kubeconfig is of another cluster or unusable. With
// Force it returns false.
func checkExisting(o *Options, info *cluster) (already bool, err error) {
	have, err := identity.Load(o.Kubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case o.Force:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w (--force replaces this node's kubeconfig)", err)
	}
	if len(have.CA) == 0 {
		return false, fmt.Errorf("this node has a kubeconfig without a CA (%s, at %s), so its cluster cannot be compared:"+
			" use --force to replace it", o.Kubeconfig, have.Server)
	}
	certs, err := cert.ParseCertsPEM(have.CA)
	if err != nil || !slices.ContainsFunc(certs, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(info.listed, func(l *x509.Certificate) bool { return pinOf(l) == pinOf(c) })
	}) {
		return false, fmt.Errorf("this node belongs to another cluster (%s, at %s): use --force to join this one instead",
			o.Kubeconfig, have.Server)
	}
	pair, err := have.Certificate()
	if err == nil && pair != nil && time.Now().Before(pair.Leaf.NotAfter) {
		return true, nil
	}
	return false, nil
}

// write writes the CA, then the bootstrap kubeconfig, for which the agent waits. With
// Force it removes the node's kubeconfig last.
func write(o *Options, token Token, info *cluster) error {
	if err := atomicfile.Write(o.CAFile, info.ca, 0o644); err != nil {
		return fmt.Errorf("write the cluster's CA: %w", err)
	}
	kubeconfig := &identity.Kubeconfig{Server: o.Server, CA: info.ca, Token: token.bearer()}
	if err := kubeconfig.Write(o.BootstrapKubeconfig); err != nil {
		return err
	}
	if o.Force {
		if err := atomicfile.Remove(o.Kubeconfig); err != nil {
			return fmt.Errorf("remove kubeconfig of the other cluster: %w", err)
		}
	}
	return nil
}
