//go:build cluster

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// DNS is the address of the Service of the cluster's DNS server.
const DNS = "10.96.0.10"

// Addon applies an add-on as kubeadm init does: kube-proxy or coredns, of the
// images that the cluster's version names. more are further documents of
// kubeadm's configuration, such as a KubeProxyConfiguration.
func (c *Cluster) Addon(t *testing.T, name, more string) {
	t.Helper()
	config, err := os.ReadFile(c.kubeadmConfig())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.dir, "addon-"+name+".yaml")
	if err := os.WriteFile(path, fmt.Appendf(config, "---\n%s", more), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.kubeadm(t.Context(), "init", "phase", "addon", name, "--config="+path, "--kubeconfig="+c.kubeconfig("super-admin")); err != nil {
		t.Fatal(err)
	}
}

// AddonImage returns the image's name that Addon uses for the named part of
// the control plane, such as kube-proxy.
func (c *Cluster) AddonImage(t *testing.T, name string) string {
	t.Helper()
	list, err := c.kubeadm(t.Context(), "config", "images", "list", "--config="+c.kubeadmConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range strings.Fields(list) {
		if strings.Contains(image, "/"+name+":") {
			return image
		}
	}
	t.Fatalf("kubeadm names no image of %s in\n%s", name, list)
	return ""
}

// HostAddress is the control plane's address on the boards' network.
func (c *Cluster) HostAddress() string { return hostAddress.Addr().String() }
