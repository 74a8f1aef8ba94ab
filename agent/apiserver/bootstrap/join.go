package bootstrap

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/apiserver/identity"
)

// The ConfigMap that whoever wants to join may read
// (k8s.io/cluster-bootstrap/token/api).
const (
	infoNamespace   = "kube-public"
	infoName        = "cluster-info"
	infoKey         = "kubeconfig"
	signaturePrefix = "jws-kubeconfig-"
)

// requestLimit is how long one answer of the server may take. A link of 1 kB/s
// takes 10 s.
const requestLimit = time.Minute

// Options are what an operator says.
type Options struct {
	// Server is the API server's URL.
	Server string
	// Token is a bootstrap token, id and secret.
	Token string
	// CAHashes are hashes of the cluster's CA; one has to be right.
	CAHashes []string
	// UnsafeSkipCAVerification trusts any CA that the token has signed. Every
	// node that ever joined with the token can then stand in for the server.
	UnsafeSkipCAVerification bool
	// Force joins although the node has a kubeconfig of another cluster,
	// which is removed, or files of an earlier attempt.
	Force bool
	// Kubeconfig is where the node's kubeconfig is to be.
	Kubeconfig string
	// BootstrapKubeconfig and CAFile are what is written.
	BootstrapKubeconfig, CAFile string
	// UserAgent names the node in the server's logs.
	UserAgent string
	// NewClient makes the clients; nil is apiclient.New.
	NewClient func(apiclient.Config) (*apiclient.Client, error)
}

// Result is what a node is to join.
type Result struct {
	// Server is what was written, as it was given.
	Server string
	// Advertised is what the cluster itself calls its API server. It may
	// differ, behind a load balancer or a translated address.
	Advertised string
	// CAHash is the hash of the CA that is trusted.
	CAHash string
	// Already says that the node is of this cluster; nothing was written.
	Already bool
}

// Join finds the cluster and writes the files. It asks the server twice and
// tries nothing again. The error says what is wrong and what to do.
func Join(ctx context.Context, o Options) (Result, error) {
	token, err := ParseToken(o.Token)
	if err != nil {
		return Result{}, err
	}
	pins, err := pinsOf(&o)
	if err != nil {
		return Result{}, err
	}
	if o.NewClient == nil {
		o.NewClient = apiclient.New
	}
	info, err := discover(ctx, &o, token, pins)
	if err != nil {
		return Result{}, err
	}
	result := Result{Server: o.Server, Advertised: info.server, CAHash: pinOf(info.authority).String()}
	if result.Already, err = judge(&o, info); err != nil || result.Already {
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
		return nil, errors.New("without the hash of the cluster's CA (--ca-cert-hash sha256:…) anybody who ever had the token" +
			" can stand in for the API server; `kubeadm token create --print-join-command` shows it," +
			" and --unsafe-skip-ca-verification joins without it")
	case len(pins) > 0 && o.UnsafeSkipCAVerification:
		return nil, errors.New("--ca-cert-hash and --unsafe-skip-ca-verification contradict each other")
	}
	return pins, nil
}

// cluster is what was found out.
type cluster struct {
	server    string // as the cluster calls it
	ca        []byte // PEM
	authority *x509.Certificate
}

// discover reads cluster-info without and with trust in the server.
func discover(ctx context.Context, o *Options, token Token, pins []pin) (*cluster, error) {
	untrusted, err := fetch(ctx, o, token, nil)
	if err != nil {
		return nil, err
	}
	info, err := parseInfo(untrusted)
	if err != nil {
		return nil, err
	}
	all, err := authorities(info.ca)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", infoNamespace, infoName, err)
	}
	if len(pins) > 0 {
		if info.ca, err = pinned(all, pins); err != nil {
			return nil, err
		}
		if all, err = authorities(info.ca); err != nil {
			return nil, err
		}
	}
	info.authority = all[0]
	trusted, err := fetch(ctx, o, token, info.ca)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(untrusted, trusted) {
		return nil, fmt.Errorf("ConfigMap %s/%s was another one the second time: somebody between here and the server changes it,"+
			" or it was just changed; try again", infoNamespace, infoName)
	}
	return info, nil
}

// fetch reads the kubeconfig in cluster-info and checks that the token has
// signed it. Without a CA the server may be anybody.
func fetch(ctx context.Context, o *Options, token Token, ca []byte) ([]byte, error) {
	client, err := o.NewClient(apiclient.Config{Server: o.Server, CA: ca, Insecure: ca == nil, UserAgent: o.UserAgent})
	if err != nil {
		return nil, err
	}
	defer client.Reconnect() // lets go of the connection
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	var info v1.ConfigMap
	if err := client.Get(ctx, apiclient.ConfigMaps, infoNamespace, infoName, &info); err != nil {
		return nil, remedy(o.Server, ca != nil, err)
	}
	kubeconfig := info.Data[infoKey]
	if kubeconfig == "" {
		return nil, fmt.Errorf("ConfigMap %s/%s holds no kubeconfig: the cluster is not set up for joining by token"+
			" (kubeadm init phase bootstrap-token does so)", infoNamespace, infoName)
	}
	signature := info.Data[signaturePrefix+token.ID]
	if signature == "" {
		return nil, fmt.Errorf("the cluster does not know the token %s, or it has expired, or its use for signing is off:"+
			" make one with `kubeadm token create`; a new one takes some seconds until it counts", token)
	}
	if err := verify(signature, []byte(kubeconfig), token); err != nil {
		if errors.Is(err, errSignature) {
			return nil, fmt.Errorf("the secret of the token %s is not the one that the cluster has:"+
				" the token is mistyped, or somebody answers in the cluster's place", token)
		}
		return nil, fmt.Errorf("ConfigMap %s/%s, token %s: %w", infoNamespace, infoName, token, err)
	}
	return []byte(kubeconfig), nil
}

// remedy says what to do about an error of a request.
func remedy(server string, trusted bool, err error) error {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &hostname):
		return fmt.Errorf("the certificate of %s is for another name: use one of the names that it has, or add this one to it"+
			" (apiServer.certSANs of kubeadm): %w", server, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s is not valid at this time: is this board's clock right (%s)? %w",
			server, time.Now().UTC().Format(time.RFC3339), err)
	case trusted && (errors.As(err, &unknown) || errors.As(err, &invalid)):
		return fmt.Errorf("the certificate of %s is not by the cluster's CA: something between here and the API server"+
			" answers in its place: %w", server, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s is no API server, or its cluster is not set up for joining by token"+
			" (no ConfigMap %s/%s): %w", server, infoNamespace, infoName, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s shows ConfigMap %s/%s to nobody without a name: anonymous requests are off, or the role"+
			" kubeadm:bootstrap-signer-clusterinfo is missing: %w", server, infoNamespace, infoName, err)
	case errors.As(err, &status) && status.Status().Reason != "" && !strings.Contains(status.Status().Message, "unknown"):
		return fmt.Errorf("%s: %w", server, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s does not answer within %s: is the address right, and is it reachable from here? %w", server, requestLimit, err)
	}
	return fmt.Errorf("%s cannot be reached, or is no API server: is the address right (https://<host>:6443)? %w", server, err)
}

// parseInfo reads the kubeconfig in cluster-info, which has a cluster without
// a name and no user. A field in another case says nothing, as with kubectl.
func parseInfo(data []byte) (*cluster, error) {
	var raw clientcmdv1.Config
	text, err := yaml.YAMLToJSON(data)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &raw)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig in ConfigMap %s/%s: %w", infoNamespace, infoName, err)
	}
	if len(raw.Clusters) != 1 {
		return nil, fmt.Errorf("kubeconfig in ConfigMap %s/%s: it names %d clusters, not one", infoNamespace, infoName, len(raw.Clusters))
	}
	c := &raw.Clusters[0].Cluster
	return &cluster{server: c.Server, ca: c.CertificateAuthorityData}, nil
}

// judge says whether the node is of the cluster already, and refuses what
// would take it away from another.
func judge(o *Options, info *cluster) (already bool, err error) {
	have, err := identity.Load(o.Kubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case o.Force:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("this node has a kubeconfig that cannot be read (--force replaces it): %w", err)
	}
	certs, err := authorities(have.CA)
	if err != nil || pinOf(certs[0]) != pinOf(info.authority) {
		return false, fmt.Errorf("this node belongs to another cluster (%s, at %s): --force joins this one in its place",
			o.Kubeconfig, have.Server)
	}
	pair, err := have.Certificate()
	if err == nil && pair != nil && time.Now().Before(pair.Leaf.NotAfter) {
		return true, nil
	}
	return false, nil
}

// write writes the CA, then the kubeconfig that makes the node begin. A
// kubeconfig that Force gives up goes only then.
func write(o *Options, token Token, info *cluster) error {
	if err := identity.Replace(o.CAFile, info.ca, 0o644); err != nil {
		return fmt.Errorf("write the cluster's CA: %w", err)
	}
	kubeconfig := &identity.Kubeconfig{Server: o.Server, CA: info.ca, Token: token.bearer()}
	if err := kubeconfig.Write(o.BootstrapKubeconfig); err != nil {
		return err
	}
	if o.Force {
		if err := os.Remove(o.Kubeconfig); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the kubeconfig of the other cluster: %w", err)
		}
	}
	return nil
}
