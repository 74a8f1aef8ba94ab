package identity

import (
	"bytes"
	"fmt"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// Encode returns the kubeconfig in YAML. The CA is inline; the client certificate
// may remain a file. The names are those that the kubelet writes after its
// bootstrap.
func (k *Kubeconfig) Encode() ([]byte, error) {
	cluster := clientcmdv1.Cluster{
		Server: k.Server, TLSServerName: k.ServerName,
		InsecureSkipTLSVerify: k.Insecure, CertificateAuthorityData: k.CA, ProxyURL: k.proxyURL(),
	}
	data, err := yaml.Marshal(clientcmdv1.Config{
		Kind: "Config", APIVersion: "v1",
		Clusters: []clientcmdv1.NamedCluster{{Name: "default-cluster", Cluster: cluster}},
		AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: "default-auth", AuthInfo: clientcmdv1.AuthInfo{
			ClientCertificate: k.CertFile, ClientKey: k.KeyFile,
			ClientCertificateData: k.Cert, ClientKeyData: k.Key,
			Token: k.Token, TokenFile: k.TokenFile,
		}}},
		Contexts: []clientcmdv1.NamedContext{{Name: "default-context", Context: clientcmdv1.Context{
			Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default",
		}}},
		CurrentContext: "default-context",
	})
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

// Write atomically replaces the file at path by the kubeconfig, with mode 0600, and
// syncs it to the disk.
func (k *Kubeconfig) Write(path string) error { return k.write(disk{}, path) }

func (k *Kubeconfig) write(d disk, path string) error {
	data, err := k.Encode()
	if err != nil {
		return err
	}
	if err := d.replace(path, data, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// certified returns the kubeconfig with the file pem as client certificate and key.
func (k *Kubeconfig) certified(pem string) *Kubeconfig {
	return &Kubeconfig{
		Server: k.Server, ServerName: k.ServerName, CA: k.CA, Insecure: k.Insecure, Proxy: k.Proxy,
		CertFile: pem, KeyFile: pem,
	}
}

// differences returns what differs between the connections of both kubeconfigs, without
// their certificates.
func (k *Kubeconfig) differences(other *Kubeconfig) []string {
	var what []string
	for _, part := range []struct {
		name   string
		differ bool
	}{
		{"server", k.Server != other.Server},
		{"server name", k.ServerName != other.ServerName},
		{"CA", !bytes.Equal(k.CA, other.CA)},
		{"verification", k.Insecure != other.Insecure},
		{"proxy", k.proxyURL() != other.proxyURL()},
		{"token", k.Token != other.Token || k.TokenFile != other.TokenFile},
	} {
		if part.differ {
			what = append(what, part.name)
		}
	}
	return what
}

// proxyURL returns the URL of the proxy; "" means the proxy of the environment.
func (k *Kubeconfig) proxyURL() string {
	if k.Proxy == nil {
		return ""
	}
	return k.Proxy.String()
}

// sameUser reports whether both have the same token and certificate. Keys and the content
// of files are not compared.
func (k *Kubeconfig) sameUser(other *Kubeconfig) bool {
	return k.Token == other.Token && k.TokenFile == other.TokenFile && bytes.Equal(k.Cert, other.Cert) && k.CertFile == other.CertFile
}
