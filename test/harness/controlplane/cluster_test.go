//go:build cluster

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tinylet/tinylet/test/harness/board"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "localhost/busybox:1"}]
`

// eventually asks until nothing is missing.
func eventually(t *testing.T, what string, missing func() string) {
	t.Helper()
	limit := time.Now().Add(startTime)
	for {
		m := missing()
		if m == "" {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("not within %v: %s: %s", startTime, what, m)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func namespaces(t *testing.T) []string {
	t.Helper()
	list, err := ip(context.WithoutCancel(t.Context()), "netns", "list")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(list) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

// TestCluster uses every part of a cluster, and looks that nothing is left.
func TestCluster(t *testing.T) {
	var name string
	var pids []int
	t.Run("while it runs", func(t *testing.T) {
		c := Start(t, Options{})
		name = c.ns.name
		for _, p := range c.servers {
			pids = append(pids, p.cmd.Process.Pid)
		}
		t.Run("set up as by kubeadm", func(t *testing.T) { setUp(t, c) })
		t.Run("workload", func(t *testing.T) { workload(t, c) })
		t.Run("restart", func(t *testing.T) { restart(t, c) })
		t.Run("token", func(t *testing.T) { token(t, c) })
		t.Run("join", func(t *testing.T) { join(t, c) })
		t.Run("audit", func(t *testing.T) { audit(t, c) })
		t.Run("board", func(t *testing.T) { attached(t, c) })
		for name, p := range c.servers {
			now, most := p.resident()
			t.Logf("%s: %d MB resident, at most %d MB", name, now>>20, most>>20)
		}
	})
	if name == "" || slices.Contains(namespaces(t), name) {
		t.Errorf("namespace %q is left", name)
	}
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d is left", pid)
		}
	}
}

func setUp(t *testing.T, c *Cluster) {
	var info, config corev1.ConfigMap
	c.Get(t, &info, "configmap", "cluster-info", "--namespace=kube-public")
	if !strings.Contains(info.Data["kubeconfig"], "server: "+c.Server()) {
		t.Errorf("cluster-info: %q", info.Data)
	}
	c.Get(t, &config, "configmap", "kubelet-config", "--namespace=kube-system")
	if !strings.Contains(config.Data["kubelet"], "kind: KubeletConfiguration") {
		t.Errorf("kubelet-config: %q", config.Data)
	}
	var bindings rbacv1.ClusterRoleBindingList
	c.Get(t, &bindings, "clusterrolebindings")
	var names []string
	for _, b := range bindings.Items {
		names = append(names, b.Name)
	}
	for _, want := range []string{
		"kubeadm:cluster-admins", "kubeadm:get-nodes", "kubeadm:kubelet-bootstrap",
		"kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("cluster role binding %s is missing", want)
		}
	}
	if v := c.Must(t, "version"); !strings.Contains(v, "Server Version: "+Version) {
		t.Errorf("versions: %s", v)
	}
}

// workload gives the cluster pods, which nothing can run yet.
func workload(t *testing.T, c *Cluster) {
	c.Apply(t, deployment)
	eventually(t, "two pods that no node can run", func() string {
		var pods corev1.PodList
		c.Get(t, &pods, "pods", "--selector=app=web")
		refused := 0
		for _, pod := range pods.Items {
			for _, cond := range pod.Status.Conditions {
				if cond.Type == corev1.PodScheduled && cond.Reason == corev1.PodReasonUnschedulable && pod.Status.Phase == corev1.PodPending {
					refused++
				}
			}
		}
		if refused == 2 {
			return ""
		}
		return fmt.Sprintf("%d of %d", refused, len(pods.Items))
	})
}

func restart(t *testing.T, c *Cluster) {
	c.StopAPIServer(t)
	if out, err := c.Kubectl(t.Context(), "get", "nodes", "--request-timeout=5s"); err == nil {
		t.Errorf("kubectl without an API server: %s", out)
	}
	began := time.Now()
	c.StartAPIServer(t)
	t.Logf("the API server is ready again after %.1f s", time.Since(began).Seconds())
	c.Must(t, "scale", "deployment/web", "--replicas=3")
	eventually(t, "the controllers work again", func() string {
		var d appsv1.Deployment
		c.Get(t, &d, "deployment", "web")
		if d.Status.Replicas == 3 {
			return ""
		}
		return fmt.Sprintf("%d replicas", d.Status.Replicas)
	})
}

func token(t *testing.T, c *Cluster) {
	one, two := c.Token(t), c.Token(t)
	if one == two || len(one) != 23 {
		t.Errorf("tokens %q and %q", one, two)
	}
	join := c.joinHash(t)
	if c.CAHash(t) != join {
		t.Errorf("CA's hash is %s, want %s", c.CAHash(t), join)
	}
	// A token gives a joining node's rights, and no more.
	get := func(path string) int {
		code, _ := c.ask(t, two, http.MethodGet, path, nil, nil)
		return code
	}
	if code := get("/api/v1/namespaces/kube-system/configmaps/kubelet-config"); code != http.StatusOK {
		t.Errorf("kubelet-config with a token: %d", code)
	}
	if code := get("/api/v1/secrets"); code != http.StatusForbidden {
		t.Errorf("secrets with a token: %d", code)
	}
}

// joinHash is the CA's hash as kubeadm tells it.
func (c *Cluster) joinHash(t *testing.T) string {
	t.Helper()
	out, err := c.kubeadm(t.Context(), "token", "create", "--kubeconfig="+c.kubeconfig("admin"), "--print-join-command")
	if err != nil {
		t.Fatal(err)
	}
	_, hash, _ := strings.Cut(out, "--discovery-token-ca-cert-hash ")
	return strings.TrimSpace(hash)
}

func audit(t *testing.T, c *Cluster) {
	events := c.AuditLog(t)
	created := slices.ContainsFunc(events, func(e Event) bool {
		return e.Verb == "create" && e.Object.Resource == "deployments" && e.User.Username == "kubernetes-admin" && e.Response.Code == http.StatusCreated
	})
	if !created {
		t.Errorf("none of %d events tells of the deployment", len(events))
	}
	var refused []string
	for _, e := range forbidden(events) {
		user, _, _ := strings.Cut(strings.TrimPrefix(e.User.Username, "system:"), ":")
		refused = append(refused, user+" "+e.RequestURI)
	}
	if want := []string{"bootstrap /api/v1/secrets", "node /api/v1/nodes/other"}; !slices.Equal(refused, want) {
		t.Errorf("refused: %q, want %q", refused, want)
	}
}

// boot boots a board on the cluster's network.
func boot(t *testing.T, c *Cluster, name string) *board.VM {
	t.Helper()
	tinylet := filepath.Join("..", "..", "..", "bin", "tinylet-arm64")
	im, err := board.Prepare(t.Context(), board.Options{Arch: board.ARM64})
	if err != nil {
		t.Fatal(err)
	}
	vm, err := board.Boot(t.Context(), im, board.VMOptions{Network: c.BoardNet(t, name), Files: board.TinyletFiles(tinylet)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console: %s", vm.ConsoleLog())
		}
		if err := vm.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := vm.WaitBooted(t.Context()); err != nil {
		t.Fatal(err)
	}
	return vm
}

// attached boots two boards, which reach the API server and each other.
func attached(t *testing.T, c *Cluster) {
	one, two := boot(t, c, "edge-one"), boot(t, c, "edge-two")
	shell := func(vm *board.VM, script string) string {
		t.Helper()
		out, err := vm.Shell(t.Context(), script)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	livez := "wget -q -T 5 -O - --no-check-certificate " + c.Server() + "/livez 2>&1 || true"
	for _, vm := range []*board.VM{one, two} {
		if got := shell(vm, livez); got != "ok" {
			t.Errorf("board asks /livez: %q", got)
		}
	}
	if got := shell(one, "hostname; ip -4 -o addr show eth0 | awk '{print $4}'"); got != "edge-one\n10.77.0.10/24" {
		t.Errorf("the first board is %q", got)
	}
	shell(two, "ping -c 1 -W 5 10.77.0.10")
	if n := c.BoardNet(t, "edge-two"); n.Address.String() != "10.77.0.11/24" {
		t.Errorf("the second board's network changed to %v", n.Address)
	}
	shell(two, "mkdir /run/www && echo from edge-two > /run/www/hello && httpd -p 10250 -h /run/www")
	if got := c.fetch(t, "http://10.77.0.11:10250/hello"); got != "from edge-two\n" {
		t.Errorf("the board's own server says %q", got)
	}
	c.Partition(t, "edge-two")
	if got := shell(two, livez); got == "ok" {
		t.Error("the board reaches the API server over a link that is cut")
	}
	if got := shell(one, livez); got != "ok" {
		t.Errorf("the other board asks /livez: %q", got)
	}
	c.Heal(t, "edge-two")
	eventually(t, "the link is whole again", func() string {
		if got := shell(two, livez); got != "ok" {
			return got
		}
		return ""
	})
	c.Gone(t, "edge-two")
	if _, err := c.ns.dial(t.Context(), "tcp", "10.77.0.11:10250"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("a board that is gone is looked for: %v", err)
	}
}

// fetch reads a URL from inside the cluster's network.
func (c *Cluster) fetch(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestLeftovers sweeps namespaces as the next start after a crash does.
func TestLeftovers(t *testing.T) {
	used, keep, err := newNamespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := used.start("sleep", filepath.Join(t.TempDir(), "log"), "sleep", "600")
	keep()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if err := used.remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	left, keep, err := newNamespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer keep()
	if err := sweepNamespaces(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := namespaces(t)
	if !slices.Contains(got, used.name) {
		t.Error("a namespace with a process in it was removed")
	}
	if slices.Contains(got, left.name) {
		t.Error("a namespace without a process is left")
	}
}
