//go:build cluster

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Networks that no packet of a board reaches: those of services and pods.
const (
	serviceSubnet = "10.96.0.0/16"
	podSubnet     = "10.244.0.0/16"
)

// kubeadmConfig is what kubeadm init would be given.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: %s
  bindPort: 6443
nodeRegistration:
  name: control-plane
  criSocket: unix:///run/containerd/containerd.sock
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
certificatesDir: %s
networking:
  serviceSubnet: %s
  podSubnet: %s
`

// auditPolicy logs each request once, with its answer and without its body.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (c *Cluster) kubeadmConfig() string { return filepath.Join(c.dir, "kubeadm.yaml") }

// kubeadm runs it in the namespace and returns what it said.
func (c *Cluster) kubeadm(ctx context.Context, args ...string) (string, error) {
	argv, err := c.command("kubeadm", args...)
	if err != nil {
		return "", err
	}
	return output(c.ns.exec(ctx, argv...))
}

// makeKeys makes the cluster's keys, certificates and kubeconfigs, as kubeadm
// does, and the client that uses them.
func (c *Cluster) makeKeys(ctx context.Context) error {
	for path, data := range map[string]string{
		c.kubeadmConfig(): fmt.Sprintf(kubeadmConfig, hostAddress.Addr(), Version, filepath.Join(c.dir, "pki"), serviceSubnet, podSubnet),
		c.auditPolicy():   auditPolicy,
	} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			return err
		}
	}
	config := "--config=" + c.kubeadmConfig()
	if _, err := c.kubeadm(ctx, "init", "phase", "certs", "all", config); err != nil {
		return err
	}
	if _, err := c.kubeadm(ctx, "init", "phase", "kubeconfig", "all", config, "--kubeconfig-dir="+c.dir); err != nil {
		return err
	}
	var err error
	if c.ca, err = os.ReadFile(c.key("ca.crt")); err != nil {
		return err
	}
	c.client, err = c.newClient("super-admin")
	return err
}

// makeObjects makes what kubeadm init makes in the API after the servers'
// start: the administrator's rights, those of bootstrap tokens and joining
// nodes, cluster-info, and the configurations that kubeadm join reads.
func (c *Cluster) makeObjects(ctx context.Context) error {
	if _, err := c.kubectl(ctx, "super-admin", nil, "create", "clusterrolebinding", "kubeadm:cluster-admins",
		"--clusterrole=cluster-admin", "--group=kubeadm:cluster-admins"); err != nil {
		return err
	}
	access := []string{"--config=" + c.kubeadmConfig(), "--kubeconfig=" + c.kubeconfig("super-admin")}
	if _, err := c.kubeadm(ctx, append([]string{"init", "phase", "upload-config", "all"}, access...)...); err != nil {
		return err
	}
	// cluster-info is a copy of this kubeconfig without its user.
	_, err := c.kubeadm(ctx, append([]string{"init", "phase", "bootstrap-token"}, access...)...)
	return err
}

// newClient makes a client that connects from inside the namespace with the
// certificate of a kubeconfig.
func (c *Cluster) newClient(user string) (*http.Client, error) {
	data, err := os.ReadFile(c.kubeconfig(user))
	if err != nil {
		return nil, err
	}
	var config struct {
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", user, err)
	}
	roots := x509.NewCertPool()
	if len(config.Users) != 1 || !roots.AppendCertsFromPEM(c.ca) {
		return nil, errors.New("read kubeconfig of " + user + ": it lacks a user or a CA")
	}
	pair, err := tls.X509KeyPair(config.Users[0].User.Certificate, config.Users[0].User.Key)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", user, err)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext:       c.ns.dial,
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}}, nil
}
