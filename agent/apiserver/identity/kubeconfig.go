package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/store/secretfile"
)

// Kubeconfig is the cluster and the user of a kubeconfig's current context.
type Kubeconfig struct {
	// Server is the API server's URL.
	Server string
	// ServerName is the expected name in the API server's certificate; "" means the
	// host of the URL.
	ServerName string
	// CA holds CA certificates in PEM; nil means the system's CAs.
	CA []byte
	// Insecure disables the verification of the API server's certificate.
	Insecure bool
	// Proxy is the URL of the proxy; nil means the proxy of the environment.
	Proxy *url.URL

	// Cert and Key are the client certificate and its key in PEM, if they are
	// inline.
	Cert, Key []byte
	// CertFile and KeyFile are their files if they are not inline; both may be the same
	// file.
	CertFile, KeyFile string
	// Token is the bearer token. TokenFile, if set, takes precedence.
	Token, TokenFile string

	caFile string
}

// Load reads a kubeconfig and its CA. The error wraps fs.ErrNotExist if the kubeconfig does
// not exist. If only the CA cannot be read, the kubeconfig is returned with the error.
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
		return nil, fmt.Errorf("parse kubeconfig %s: %w", path, err)
	}
	if k.caFile == "" {
		return k, nil
	}
	if k.CA, err = readFile(k.caFile); err != nil {
		// Without %w: fs.ErrNotExist means that the kubeconfig does not exist.
		return k, fmt.Errorf("kubeconfig %s: read certificate authority: %v", path, err) //nolint:errorlint // see above
	}
	return k, nil
}

// Decode decodes a kubeconfig. As in kubectl, unknown fields and fields in another case are
// ignored.
func Decode(data []byte) (*clientcmdv1.Config, error) {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, err
	}
	config := &clientcmdv1.Config{}
	return config, kjson.UnmarshalCaseSensitivePreserveInts(text, config)
}

// Parse parses a kubeconfig without reading the files that it refers to. Relative
// paths are relative to dir.
func Parse(data []byte, dir string) (*Kubeconfig, error) {
	raw, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("not a kubeconfig: %w", err)
	}
	if (raw.Kind != "" && raw.Kind != "Config") || (raw.APIVersion != "" && raw.APIVersion != "v1") {
		return nil, fmt.Errorf("not a kubeconfig but %s %s", raw.APIVersion, raw.Kind)
	}
	if raw.CurrentContext == "" {
		return nil, errors.New("current-context is missing")
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

// named returns the value of the one item with a name.
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
		return found, fmt.Errorf("no %s %q", what, name)
	case 1:
		return found, nil
	}
	return found, fmt.Errorf("%s %q is defined %d times", what, name, count)
}

func (k *Kubeconfig) ofCluster(c *clientcmdv1.Cluster, dir string) error {
	k.Server, k.ServerName, k.Insecure = c.Server, c.TLSServerName, c.InsecureSkipTLSVerify
	if k.Server == "" {
		return errors.New("server is missing")
	}
	if len(c.CertificateAuthorityData) > 0 {
		k.CA = c.CertificateAuthorityData
	} else {
		k.caFile = absolute(c.CertificateAuthority, dir)
	}
	if k.Insecure && (k.CA != nil || k.caFile != "") {
		return errors.New("insecure-skip-tls-verify and a certificate authority are mutually exclusive")
	}
	if c.ProxyURL == "" {
		return nil
	}
	proxy, err := url.Parse(c.ProxyURL)
	if err != nil {
		return errors.New("proxy-url is not a URL") // the error could quote a password
	}
	switch proxy.Scheme {
	case "http", "https", "socks5":
		k.Proxy = proxy
		return nil
	}
	return fmt.Errorf("proxy-url has unsupported scheme %q: want http, https or socks5", proxy.Scheme)
}

func (k *Kubeconfig) ofUser(u *clientcmdv1.AuthInfo, dir string) error {
	switch {
	case u.Exec != nil:
		return fmt.Errorf("credential plugins are not supported (exec: %s): use a certificate or a token", u.Exec.Command)
	case u.AuthProvider != nil:
		return fmt.Errorf("auth-provider %q no longer exists: use a certificate or a token", u.AuthProvider.Name)
	case u.Username != "" || u.Password != "":
		return errors.New("API servers no longer support username and password: use a certificate or a token")
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return errors.New("a node must not use impersonation (as, as-groups)")
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
		return errors.New("client certificate and key must be set together")
	}
	return nil
}

func absolute(path, dir string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// HasCertificate reports whether the kubeconfig has a client certificate.
func (k *Kubeconfig) HasCertificate() bool { return k.Cert != nil || k.CertFile != "" }

// Certificate returns the client certificate, nil if there is none. It reads files
// on each call.
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
			return nil, fmt.Errorf("read client key: %w", err)
		}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load client certificate: %w", err)
	}
	return &pair, nil
}

// Connection returns the client configuration with the kubeconfig's own credentials. A
// certificate in files is read at each new connection, a token file at most once a minute.
func (k *Kubeconfig) Connection() apiclient.Config {
	c := apiclient.Config{Server: k.Server, CA: k.CA, ServerName: k.ServerName, Insecure: k.Insecure}
	if k.Proxy != nil {
		c.Proxy = http.ProxyURL(k.Proxy)
	}
	if k.HasCertificate() {
		c.Certificate = k.Certificate
	}
	if k.Token != "" || k.TokenFile != "" {
		c.Token = (&bearer{token: k.Token, path: k.TokenFile}).read
	}
	return c
}

// readFile reads a kubeconfig, certificate, key or token file, of at most 1 MiB.
func readFile(path string) ([]byte, error) { return secretfile.ReadAny(path, 1<<20) }
