//go:build cluster

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// securePort is the API server's, on hostAddress.
const securePort = 6443

// storeURL is where etcd listens, inside the namespace.
const storeURL = "http://127.0.0.1:2379"

// flushLogs bounds what a log lacks when its server is killed.
const flushLogs = "--log-flush-frequency=1s"

// program returns the path of a built program of the control plane.
func (c *Cluster) program(name string) (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("find the checkout: no source path")
	}
	path := filepath.Join(filepath.Dir(here), "..", "..", "..", ".cache", "cluster", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w; make control-plane metrics-server builds it", err)
	}
	return path, nil
}

// command is the command line of one part of the control plane.
func (c *Cluster) command(name string, args ...string) ([]string, error) {
	if name == "etcd" || name == "metrics-server" {
		path, err := c.program(name)
		return append([]string{path}, args...), err
	}
	path, err := c.program("servers")
	return append([]string{path, name}, args...), err
}

func (c *Cluster) key(name string) string { return filepath.Join(c.dir, "pki", name) }

func (c *Cluster) kubeconfig(name string) string { return filepath.Join(c.dir, name+".conf") }

func (c *Cluster) auditLog() string { return filepath.Join(c.logs, "audit.log") }

func (c *Cluster) auditPolicy() string { return filepath.Join(c.dir, "audit-policy.yaml") }

func (c *Cluster) etcdArgs() []string {
	const clients, peers = storeURL, "http://127.0.0.1:2380"
	return []string{
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
		// What it keeps ends with the test.
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

// apiServerArgs are those of kubeadm's static pod, but for etcd without TLS,
// ways to other API servers that need no service address, and an audit log,
// which is whole when an answer is out.
func (c *Cluster) apiServerArgs() []string {
	return append([]string{
		"--advertise-address=" + hostAddress.Addr().String(), fmt.Sprint("--secure-port=", securePort), "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
		"--etcd-servers=" + storeURL,
		"--client-ca-file=" + c.key("ca.crt"),
		"--tls-cert-file=" + c.key("apiserver.crt"), "--tls-private-key-file=" + c.key("apiserver.key"),
		"--kubelet-client-certificate=" + c.key("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + c.key("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file=" + c.key("front-proxy-client.crt"), "--proxy-client-key-file=" + c.key("front-proxy-client.key"),
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-client-ca-file=" + c.key("front-proxy-ca.crt"),
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--enable-aggregator-routing=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.key("sa.pub"), "--service-account-signing-key-file=" + c.key("sa.key"),
		"--service-cluster-ip-range=" + serviceSubnet,
		"--audit-policy-file=" + c.auditPolicy(), "--audit-log-path=" + c.auditLog(), "--audit-log-mode=blocking-strict",
		"--audit-log-maxsize=10000", // MB: one file, never rotated
		flushLogs,
	}, c.options.APIServerArgs...)
}

// controllerManagerArgs are those of kubeadm's static pod. There is one
// controller manager, so it needs no lease, and lives on when it could not
// renew one.
func (c *Cluster) controllerManagerArgs() []string {
	config := c.kubeconfig("controller-manager")
	return append([]string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false",
		"--allocate-node-cidrs=true", "--cluster-cidr=" + podSubnet, "--service-cluster-ip-range=" + serviceSubnet,
		"--client-ca-file=" + c.key("ca.crt"), "--root-ca-file=" + c.key("ca.crt"),
		"--cluster-name=kubernetes", "--cluster-signing-cert-file=" + c.key("ca.crt"), "--cluster-signing-key-file=" + c.key("ca.key"),
		"--controllers=*,bootstrapsigner,tokencleaner", "--use-service-account-credentials=true",
		"--requestheader-client-ca-file=" + c.key("front-proxy-ca.crt"),
		"--service-account-private-key-file=" + c.key("sa.key"), flushLogs,
	}, c.options.ControllerManagerArgs...)
}

func (c *Cluster) schedulerArgs() []string {
	config := c.kubeconfig("scheduler")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false", flushLogs,
	}
}
