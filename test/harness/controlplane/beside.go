//go:build cluster

package controlplane

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// kubectlScript is a kubectl for programs that call it by its name.
const kubectlScript = "#!/bin/sh\nexec %s \"$@\"\n"

// Beside returns a command of this machine that runs in the cluster's network.
// Its PATH leads to a kubectl of the cluster's version first. The command is in
// a process group of its own and ends with ctx.
func (c *Cluster) Beside(t *testing.T, ctx context.Context, argv ...string) *exec.Cmd {
	t.Helper()
	kubectl, err := c.program("servers")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(c.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Appendf(nil, kubectlScript, "'"+kubectl+"' kubectl")
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := c.ns.exec(ctx, argv...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "PATH="+bin+":"+os.Getenv("PATH"))
	return cmd
}

// AdminKubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) AdminKubeconfig() string { return c.kubeconfig("admin") }

// Route sends what the control plane has for a network, such as that of a
// node's pods, to a board.
func (c *Cluster) Route(t *testing.T, network, name string) {
	t.Helper()
	address := c.BoardNet(t, name).Address.Addr().String()
	if err := c.ns.ip(t.Context(), "route", "replace", network, "via", address); err != nil {
		t.Fatalf("send %s to board %s: %v", network, name, err)
	}
}

// Bootstrap returns a kubeconfig of a bootstrap token, as kubeadm writes it,
// for any address of the API server.
func (c *Cluster) Bootstrap(server, token string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server, base64.StdEncoding.EncodeToString(c.ca), token)
}
