//go:build cluster

package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// output runs a command and returns its output without the white space around
// it. The error has what the command said.
func output(cmd *exec.Cmd) (string, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		program := slices.IndexFunc(cmd.Args, func(a string) bool { return strings.HasSuffix(a, "/servers") })
		return "", fmt.Errorf("run %s: %w: %s%s", strings.Join(cmd.Args[program+1:], " "), err, out.String(), said.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *Cluster) kubectl(ctx context.Context, user string, stdin io.Reader, args ...string) (string, error) {
	cmd, err := c.kubectlCommand(ctx, user, args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = stdin
	return output(cmd)
}

func (c *Cluster) kubectlCommand(ctx context.Context, user string, args ...string) (*exec.Cmd, error) {
	argv, err := c.command("kubectl", append([]string{"--kubeconfig=" + c.kubeconfig(user)}, args...)...)
	if err != nil {
		return nil, err
	}
	cmd := c.ns.exec(ctx, argv...)
	cmd.Env = append(os.Environ(), "HOME="+c.dir) // its caches
	return cmd, nil
}

// Command is a kubectl of the administrator that is ready to be started, for
// tests that follow its output or have a terminal for it. It runs in the
// cluster's network, ends with ctx, and is in a process group of its own.
func (c *Cluster) Command(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	cmd, err := c.kubectlCommand(ctx, "admin", args...)
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// Kubectl runs kubectl as the administrator and returns its output without the
// white space around it. The error has what kubectl said.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "admin", nil, args...)
}

// Must is Kubectl that has to work.
func (c *Cluster) Must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Apply applies manifests.
func (c *Cluster) Apply(t *testing.T, manifests string) {
	t.Helper()
	if _, err := c.kubectl(t.Context(), "admin", strings.NewReader(manifests), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// Get reads what `kubectl get args...` names into an object or a list of the
// API's types.
func (c *Cluster) Get(t *testing.T, into any, args ...string) {
	t.Helper()
	out := c.Must(t, append(append([]string{"get"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("read the answer of kubectl get %s: %v", strings.Join(args, " "), err)
	}
}

// Client is an administrator's connection to the API server, and to whatever
// else trusts that certificate inside the cluster's network.
func (c *Cluster) Client() *http.Client { return c.client }

// Server is the API server's URL, for boards and for Client.
func (c *Cluster) Server() string {
	return "https://" + netip.AddrPortFrom(hostAddress.Addr(), securePort).String()
}

// CA is the cluster's CA certificate in PEM.
func (c *Cluster) CA() []byte { return bytes.Clone(c.ca) }

// CAHash is the CA's public key as kubeadm join takes it: sha256:<hex>.
func (c *Cluster) CAHash(t *testing.T) string {
	t.Helper()
	block, _ := pem.Decode(c.ca)
	if block == nil {
		t.Fatal("hash the CA's key: no PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatalf("hash the CA's key: %v", err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Token makes a bootstrap token and waits until cluster-info is signed with
// it, so that a board can join with it at once.
func (c *Cluster) Token(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	token, err := c.kubeadm(ctx, "token", "create", "--kubeconfig="+c.kubeconfig("admin"), "--ttl=24h")
	if err != nil {
		t.Fatal(err)
	}
	id, _, ok := strings.Cut(token, ".")
	if !ok {
		t.Fatalf("kubeadm made token %q", token)
	}
	for {
		out, err := c.Kubectl(ctx, "get", "configmap", "cluster-info", "--namespace=kube-public", "-o", "jsonpath={.data.jws-kubeconfig-"+id+"}")
		if err != nil {
			t.Fatal(err)
		}
		if out != "" {
			return token
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("wait until cluster-info is signed with token %s: %v", id, context.Cause(ctx))
		}
	}
}

// AuditLog returns all requests that the API server has answered so far.
func (c *Cluster) AuditLog(t *testing.T) []Event {
	t.Helper()
	data, err := os.ReadFile(c.auditLog())
	if err != nil {
		t.Fatal(err)
	}
	events, err := ParseAudit(data)
	if err != nil {
		t.Fatal(err)
	}
	return events
}
