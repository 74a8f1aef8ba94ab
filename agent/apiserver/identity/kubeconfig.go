package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// maxFile bounds what is read of a kubeconfig, a certificate or a token.
const maxFile = 1 << 20

// Kubeconfig is what a kubeconfig's current context says of a server and of
// who asks it.
type Kubeconfig struct {
	// Server is the API server's URL.
	Server string
	// ServerName is the name in the server's certificate; "" is the URL's.
	ServerName string
	// CA are certificates in PEM; nil are the system's.
	CA []byte
	// Insecure takes any certificate of the server.
	Insecure bool
	// Proxy is the proxy's URL; nil asks the environment.
	Proxy *url.URL

	// Cert and Key are the client's, in PEM, if the kubeconfig holds them.
	Cert, Key []byte
	// CertFile and KeyFile hold them else; both may be one file.
	CertFile, KeyFile string
	// Token is the bearer token, unless TokenFile holds it.
	Token, TokenFile string

	caFile string
}

// Load reads a kubeconfig and its CA. The error wraps fs.ErrNotExist when the
// kubeconfig is not there.
func Load(path string) (*Kubeconfig, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	k, err := Parse(data, dir)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if k.caFile != "" {
		if k.CA, err = readFile(k.caFile); err != nil {
			// Without %w: what is missing is not the kubeconfig.
			return nil, fmt.Errorf("kubeconfig %s: read the certificate authority: %v", path, err) //nolint:errorlint // see above
		}
	}
	return k, nil
}

// Parse reads a kubeconfig without its files; relative paths begin at dir. As
// with kubectl, unknown fields say nothing, nor do those in another case.
func Parse(data []byte, dir string) (*Kubeconfig, error) {
	var raw clientcmdv1.Config
	text, err := yaml.YAMLToJSON(data)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &raw)
	}
	if err != nil {
		return nil, fmt.Errorf("not a kubeconfig: %w", err)
	}
	if (raw.Kind != "" && raw.Kind != "Config") || (raw.APIVersion != "" && raw.APIVersion != "v1") {
		return nil, fmt.Errorf("not a kubeconfig but %s %s", raw.APIVersion, raw.Kind)
	}
	if raw.CurrentContext == "" {
		return nil, errors.New("it has no current-context")
	}
	context, err := named("context", raw.Contexts, raw.CurrentContext, func(n clientcmdv1.NamedContext) (string, clientcmdv1.Context) { return n.Name, n.Context })
	if err != nil {
		return nil, err
	}
	cluster, err := named("cluster", raw.Clusters, context.Cluster, func(n clientcmdv1.NamedCluster) (string, clientcmdv1.Cluster) { return n.Name, n.Cluster })
	if err != nil {
		return nil, err
	}
	var user clientcmdv1.AuthInfo
	if context.AuthInfo != "" {
		user, err = named("user", raw.AuthInfos, context.AuthInfo, func(n clientcmdv1.NamedAuthInfo) (string, clientcmdv1.AuthInfo) { return n.Name, n.AuthInfo })
		if err != nil {
			return nil, err
		}
	}
	k := &Kubeconfig{}
	if err := k.ofCluster(&cluster, dir); err != nil {
		return nil, fmt.Errorf("cluster %q: %w", context.Cluster, err)
	}
	if err := k.ofUser(&user, dir); err != nil {
		return nil, fmt.Errorf("user %q: %w", context.AuthInfo, err)
	}
	return k, nil
}

// named finds the one item of a name.
func named[N, T any](what string, items []N, name string, of func(N) (string, T)) (found T, err error) {
	count := 0
	for _, item := range items {
		if n, value := of(item); n == name {
			found = value
			count++
		}
	}
	switch count {
	case 0:
		return found, fmt.Errorf("it has no %s %q", what, name)
	case 1:
		return found, nil
	}
	return found, fmt.Errorf("it has %d times the %s %q", count, what, name)
}

func (k *Kubeconfig) ofCluster(c *clientcmdv1.Cluster, dir string) error {
	k.Server, k.ServerName, k.Insecure = c.Server, c.TLSServerName, c.InsecureSkipTLSVerify
	if k.Server == "" {
		return errors.New("it names no server")
	}
	if len(c.CertificateAuthorityData) > 0 {
		k.CA = c.CertificateAuthorityData
	} else {
		k.caFile = absolute(c.CertificateAuthority, dir)
	}
	if k.Insecure && (k.CA != nil || k.caFile != "") {
		return errors.New("insecure-skip-tls-verify and a certificate authority contradict each other")
	}
	if c.ProxyURL == "" {
		return nil
	}
	proxy, err := url.Parse(c.ProxyURL)
	if err != nil {
		return errors.New("proxy-url is no URL") // the error would quote a password
	}
	switch proxy.Scheme {
	case "http", "https", "socks5":
		k.Proxy = proxy
		return nil
	}
	return fmt.Errorf("proxy-url has the scheme %q, not http, https or socks5", proxy.Scheme)
}

func (k *Kubeconfig) ofUser(u *clientcmdv1.AuthInfo, dir string) error {
	switch {
	case u.Exec != nil:
		return fmt.Errorf("it runs a credential plugin (exec: %s), which a node does not: give it a certificate or a token", u.Exec.Command)
	case u.AuthProvider != nil:
		return fmt.Errorf("it needs the auth-provider %q, which no longer exists: give it a certificate or a token", u.AuthProvider.Name)
	case u.Username != "" || u.Password != "":
		return errors.New("it has a user name and password, which no API server takes any more")
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return errors.New("it acts as somebody else (as, as-groups), which a node must not")
	}
	k.Token, k.TokenFile = u.Token, absolute(u.TokenFile, dir)
	k.Cert, k.Key = u.ClientCertificateData, u.ClientKeyData
	if len(k.Cert) == 0 {
		k.Cert, k.CertFile = nil, absolute(u.ClientCertificate, dir)
	}
	if len(k.Key) == 0 {
		k.Key, k.KeyFile = nil, absolute(u.ClientKey, dir)
	}
	if hasCert, hasKey := k.Cert != nil || k.CertFile != "", k.Key != nil || k.KeyFile != ""; hasCert != hasKey {
		return errors.New("a client certificate and its key go together, and one of them is missing")
	}
	return nil
}

func absolute(path, dir string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// HasCertificate says that the kubeconfig names a client certificate.
func (k *Kubeconfig) HasCertificate() bool { return k.Cert != nil || k.CertFile != "" }

// HasToken says that the kubeconfig names a bearer token.
func (k *Kubeconfig) HasToken() bool { return k.Token != "" || k.TokenFile != "" }

// Certificate reads the client certificate, nil if there is none.
func (k *Kubeconfig) Certificate() (*tls.Certificate, error) {
	if !k.HasCertificate() {
		return nil, nil
	}
	cert, key := k.Cert, k.Key
	var err error
	if cert == nil {
		if cert, err = readFile(k.CertFile); err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
	}
	if key == nil {
		if key, err = readFile(k.KeyFile); err != nil {
			return nil, fmt.Errorf("read key of client certificate: %w", err)
		}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return &pair, nil
}

// Connection is how to connect with the kubeconfig's own credentials, which
// are read anew where they are files.
func (k *Kubeconfig) Connection() apiclient.Config {
	c := apiclient.Config{Server: k.Server, CA: k.CA, ServerName: k.ServerName, Insecure: k.Insecure}
	if k.Proxy != nil {
		c.Proxy = http.ProxyURL(k.Proxy)
	}
	if k.HasCertificate() {
		c.Certificate = k.Certificate
	}
	if k.HasToken() {
		c.Token = (&bearer{token: k.Token, path: k.TokenFile}).read
	}
	return c
}

// readFile reads a file that is not larger than files of its kind are.
func readFile(path string) ([]byte, error) {
	// Without O_NONBLOCK, a FIFO would block for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return data, nil
}
