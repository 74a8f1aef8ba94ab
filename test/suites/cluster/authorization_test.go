//go:build cluster

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"strings"
	"time"
)

// rights are users with and without them.
const rights = `apiVersion: v1
kind: ServiceAccount
metadata: {name: nothing}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: pods}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: proxy}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: proxy-reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-metrics}
rules: [{apiGroups: [""], resources: [nodes/metrics, nodes/stats], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-pods}
rules: [{apiGroups: [""], resources: [nodes/pods, nodes/healthz, nodes/configz], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-proxy}
rules: [{apiGroups: [""], resources: [nodes/proxy], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-proxy-reader}
rules: [{apiGroups: [""], resources: [nodes/proxy], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-metrics}
subjects: [{kind: ServiceAccount, name: metrics, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-pods}
subjects: [{kind: ServiceAccount, name: pods, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-proxy}
subjects: [{kind: ServiceAccount, name: proxy, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-proxy-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-proxy-reader}
subjects: [{kind: ServiceAccount, name: proxy-reader, namespace: default}]
`

// nodePort is the node's own API, not by way of the API server.
const nodePort = "https://10.77.0.10:10250"

// whoMay asks the node itself, as all sorts of users, for each of its routes.
func (l lab) whoMay() {
	l.c.Apply(l.T, rights)
	token := func(account string) string { return l.c.Must(l.T, "create", "token", account, "--duration=1h") }
	own, err := tls.X509KeyPair(pair(l.c.NodeCertificate(l.T, name, time.Hour)))
	if err != nil {
		l.Fatal(err)
	}
	admin, err := tls.X509KeyPair(pair(l.c.Certificate(l.T, pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, time.Hour)))
	if err != nil {
		l.Fatal(err)
	}
	type user struct {
		name   string
		client *http.Client
		token  string
	}
	users := []user{
		{name: "anonymous", client: l.c.Insecure(nil)},
		{name: "a wrong token", client: l.c.Insecure(nil), token: "no.such.token"},
		{name: "the node", client: l.c.Insecure(&own)},
		{name: "nothing", client: l.c.Insecure(nil), token: token("nothing")},
		{name: "metrics", client: l.c.Insecure(nil), token: token("metrics")},
		{name: "pods", client: l.c.Insecure(nil), token: token("pods")},
		{name: "proxy", client: l.c.Insecure(nil), token: token("proxy")},
		{name: "proxy-reader", client: l.c.Insecure(nil), token: token("proxy-reader")},
		{name: "admin", client: l.c.Insecure(&admin)},
	}
	// What each may, in the order of the users: 401 for who is not known, 403
	// for who is and may not. Where proxy was the only right of old, it is one
	// still; of stats, metrics, logs and checkpoints it has never been one.
	const refused = "401 401 403 403 "
	for _, row := range []struct{ method, path, want string }{
		{"GET", "/healthz", refused + "403 200 200 200 200"},
		{"GET", "/healthz/syncloop", refused + "403 200 200 200 200"},
		{"GET", "/healthz/no/such/check", refused + "403 404 404 404 404"},
		{"GET", "/pods", refused + "403 200 200 200 200"},
		{"GET", "/runningpods/", refused + "403 200 200 200 200"},
		{"GET", "/configz", refused + "403 200 200 200 200"},
		{"GET", "/stats/summary", refused + "200 403 403 403 200"},
		{"GET", "/metrics", refused + "200 403 403 403 200"},
		{"GET", "/metrics/resource", refused + "200 403 403 403 200"},
		{"GET", "/metrics/cadvisor", refused + "200 403 403 403 200"},
		{"GET", "/metrics/probes", refused + "200 403 403 403 200"},
		{"GET", "/containerLogs/default/web/main", refused + "403 403 200 200 200"},
		{"GET", "/logs/", refused + "403 403 403 403 200"},
		{"GET", "/debug/pprof/", refused + "403 403 200 200 200"},
		{"GET", "/debug/pprof/cmdline", refused + "403 403 200 200 200"},
		{"GET", "/debug/flags/v", refused + "403 403 405 405 405"},
		{"POST", "/run/default/web/main?cmd=true", refused + "403 403 200 403 200"},
		{"GET", "/exec/default/web/main?command=true&output=1", refused + "403 403 426 403 426"}, // it is no upgrade
		{"GET", "/attach/default/web/main?output=1", refused + "403 403 426 403 426"},
		{"GET", "/portForward/default/web", refused + "403 403 426 403 426"},
		{"GET", "/checkpoint/default/web/main", refused + "403 403 403 403 404"},
		{"GET", "/no/such/route", refused + "403 403 404 404 404"},
		{"GET", "/containerLogs/default/nobody/main", refused + "403 403 404 404 404"},
		{"GET", "/logs/../../etc/shadow", "307 307 307 307 307 307 307 307 307"},
		{"GET", "/logs/%2e%2e/%2e%2e/etc/shadow", "307 307 307 307 307 307 307 307 307"},
	} {
		var got []string
		for _, u := range users {
			got = append(got, l.answers(u.client, u.token, row.method, row.path))
		}
		if codes := strings.Join(got, " "); codes != row.want {
			l.Errorf("%s %s: %s, want %s", row.method, row.path, codes, row.want)
		}
	}
	l.revoked(l.c.Insecure(nil))
}

// revoked has a token's account deleted: what the node remembers of it ends.
func (l lab) revoked(client *http.Client) {
	l.c.Must(l.T, "create", "serviceaccount", "leaver")
	l.c.Must(l.T, "create", "clusterrolebinding", "leaver", "--clusterrole=node-pods", "--serviceaccount=default:leaver")
	token := l.c.Must(l.T, "create", "token", "leaver", "--duration=1h")
	if got := l.answers(client, token, "GET", "/pods"); got != "200" {
		l.Fatalf("a new account's right: %s", got)
	}
	l.c.Must(l.T, "delete", "serviceaccount", "leaver")
	l.until("the token is not believed any more", func() string {
		if got := l.answers(client, token, "GET", "/pods"); got != "401" {
			return got
		}
		return ""
	})
}

// answers is the code that a request is answered with.
func (l lab) answers(client *http.Client, token, method, path string) string {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, nodePort+path, nil)
	if err != nil {
		l.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 16<<20))
	return res.Status[:3]
}

// pair is one PEM as both halves of a key pair.
func pair(both []byte) (certificate, key []byte) { return both, both }
