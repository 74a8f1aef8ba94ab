//go:build cluster

package controlplane

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// metricsPort is metrics-server's, on hostAddress.
const metricsPort = 4443

// metricsServerObjects are those of metrics-server's own manifests. No packet
// reaches a service's address here, so the service selects no pods and its
// endpoint is where the process listens.
const metricsServerObjects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics-server, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:metrics-server"}
rules:
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
- {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:metrics-server"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:metrics-server"}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "metrics-server:system:auth-delegator"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: metrics-server-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{name: https, port: 443, targetPort: %[2]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}}
addressType: IPv4
ports: [{name: https, port: %[2]d}]
endpoints: [{addresses: [%[1]s]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: metrics-server, namespace: kube-system}
  insecureSkipTLSVerify: true
`

// metricsServerConfig is the kubeconfig of its service account.
const metricsServerConfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// MetricsServer starts the stock metrics-server, with no more rights than its
// manifests give it, and returns when the API server hands its API on: kubectl
// top works when it has scraped a node twice, every 15 seconds. It does not
// judge the nodes' serving certificates. It ends with the cluster, which has at
// most one.
func (c *Cluster) MetricsServer(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	c.Apply(t, fmt.Sprintf(metricsServerObjects, hostAddress.Addr(), metricsPort))
	token := c.Must(t, "create", "token", "metrics-server", "--namespace=kube-system", "--duration=24h")
	config := fmt.Appendf(nil, metricsServerConfig, c.Server(), base64.StdEncoding.EncodeToString(c.ca), token)
	if err := os.WriteFile(c.kubeconfig("metrics-server"), config, 0o600); err != nil {
		t.Fatalf("write the kubeconfig of metrics-server: %v", err)
	}
	if err := c.run("metrics-server", c.metricsServerArgs()...); err != nil {
		t.Fatal(err)
	}
	if err := c.waitOK(ctx, "metrics-server", "/apis/metrics.k8s.io/v1beta1"); err != nil {
		t.Fatal(err)
	}
}

// metricsServerArgs are those of its manifests, but for where it listens and
// whom it trusts. It makes itself a certificate.
func (c *Cluster) metricsServerArgs() []string {
	config := c.kubeconfig("metrics-server")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=" + hostAddress.Addr().String(), fmt.Sprint("--secure-port=", metricsPort),
		"--cert-dir=" + filepath.Join(c.dir, "metrics-server"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", "--kubelet-use-node-status-port",
		"--kubelet-insecure-tls", "--metric-resolution=15s",
	}
}
