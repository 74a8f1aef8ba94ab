//go:build cluster

package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

// joinFiles lists all that joining may write, with what is in it. The agent's
// serving certificate is its own business.
const joinFiles = "find /etc/kubernetes /etc/tinylet /var/lib/kubelet/pki/kubelet-client* \\( -type f -o -type l \\) 2> /dev/null | sort | xargs -r md5sum"

// TestJoinCommand joins a board with tinylet join, after all that can go wrong
// with it.
func TestJoinCommand(t *testing.T) {
	l := prepareLab(t)
	link := l.c.Link(t)
	l.vm = l.bootWith(joining(nil, board.File{Path: staticFile, Mode: 0o644, Data: []byte(static)}))
	l.run(t,
		step{"what is refused", func(l lab) { l.joinRefused(link) }},
		step{"join", lab.joinGood},
		step{"join again", lab.joinAgain},
	)
}

// join runs tinylet join with arguments, and answers its exit code and what it
// said.
func (l lab) join(args ...string) (exit int, stdout, stderr string) {
	l.Helper()
	began := time.Now()
	out, err := l.vm.Run(l.Context(), append([]string{"tinylet", "join"}, args...)...)
	if err != nil {
		l.Fatal(err)
	}
	l.Logf("tinylet join %s\nended with %d after %.1f s:\n%s%s", strings.Join(args, " "), out.Exit, time.Since(began).Seconds(), out.Stdout, out.Stderr)
	return out.Exit, string(out.Stdout), string(out.Stderr)
}

// expired makes a token that has expired.
func (l lab) expired() string {
	l.Helper()
	token := l.c.Token(l.T)
	id, _, _ := strings.Cut(token, ".")
	l.c.Must(l.T, "patch", "secret", "bootstrap-token-"+id, "--namespace=kube-system", `--patch={"stringData":{"expiration":"2020-01-02T03:04:05Z"}}`)
	l.until("the cluster drops the token", func() string {
		var info corev1.ConfigMap
		l.c.Get(l.T, &info, "configmap", "cluster-info", "--namespace=kube-public")
		if _, signed := info.Data["jws-kubeconfig-"+id]; signed {
			return "it signs with it"
		}
		return ""
	})
	return token
}

func (l lab) joinRefused(link *controlplane.Link) {
	token, hash := l.c.Token(l.T), l.c.CAHash(l.T)
	id, _, _ := strings.Cut(token, ".")
	through := "https://" + link.Address()
	expired := l.expired()
	before := l.sh(joinFiles)
	for _, row := range []struct {
		name        string
		mode        controlplane.Mode
		server      string
		token, hash string
		args        []string
		want        []string // what was tried, on what, why, and what to do
	}{
		{name: "wrong hash", server: l.c.Server(), token: token, hash: "sha256:" + strings.Repeat("ab", 32), want: []string{"the hash " + hash, "--ca-cert-hash", "kubeadm token create"}},
		{name: "a hash that is none", server: l.c.Server(), token: token, hash: "sha256:abc", want: []string{`"sha256:abc"`, "64 hexadecimal digits", "kubeadm token create"}},
		{name: "wrong secret", server: l.c.Server(), token: id + ".0123456789abcdef", hash: hash, want: []string{"the token " + id + ".<secret>", "mistyped"}},
		{name: "unknown token", server: l.c.Server(), token: "aaaaaa.0123456789abcdef", hash: hash, want: []string{"token aaaaaa.<secret> is unknown", "kubeadm token create"}},
		{name: "expired token", server: l.c.Server(), token: expired, hash: hash, want: []string{"or it has expired", "kubeadm token create"}},
		{name: "a token that is none", server: l.c.Server(), token: "hello", hash: hash, want: []string{"not of the form", "kubeadm token create"}},
		{name: "no token", server: l.c.Server(), hash: hash, want: []string{"--token", "kubeadm token create"}},
		{name: "no hash", server: l.c.Server(), token: token, want: []string{"--ca-cert-hash", "kubeadm token create"}},
		{name: "no server", token: token, hash: hash, want: []string{"--server", "https://10.0.0.1:6443"}},
		{name: "a server without https", server: "http://10.77.0.1:6443", token: token, hash: hash, want: []string{"http://10.77.0.1:6443", "only https"}},
		{name: "nothing listens", server: "https://10.77.0.1:6400", token: token, hash: hash, want: []string{"https://10.77.0.1:6400", "connection refused", "is the address right"}},
		{name: "no such host", server: "https://10.77.0.77:6443", token: token, hash: hash, want: []string{"https://10.77.0.77:6443", "no route to host", "is the address right"}},
		{name: "no such name", server: "https://control-plane.example:6443", token: token, hash: hash, want: []string{"https://control-plane.example:6443", "is the address right"}},
		{name: "garbage", mode: controlplane.Garbage, server: through, token: token, hash: hash, want: []string{through, "is not an API server", "is the address right"}},
		{name: "a server that hangs", mode: controlplane.Hang, server: through, token: token, hash: hash, want: []string{through, "no data from the API server", "is the address right"}},
		{name: "no place for the files", server: l.c.Server(), token: token, hash: hash, args: []string{"--ca-file=/proc/x/ca.crt"}, want: []string{"write the cluster's CA", "/proc/x"}},
	} {
		l.Run(row.name, func(t *testing.T) {
			l := l.with(t)
			link.SetMode(row.mode)
			args := row.args
			for flag, value := range map[string]string{"--server=": row.server, "--token=": row.token, "--ca-cert-hash=": row.hash} {
				if value != "" {
					args = append(args, flag+value)
				}
			}
			exit, stdout, stderr := l.join(args...)
			if exit == 0 || stdout != "" {
				t.Errorf("it ended with %d and printed %q", exit, stdout)
			}
			for _, want := range row.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("the error does not say %q", want)
				}
			}
			for _, secret := range []string{token, expired} {
				if _, secret, _ = strings.Cut(secret, "."); strings.Contains(stderr, secret) {
					t.Error("the error has a token's secret")
				}
			}
			if after := l.sh(joinFiles); after != before {
				t.Errorf("it changed files:\n%s\nwere\n%s", after, before)
			}
		})
	}
	link.SetMode(controlplane.Pass)
	l.until("the static pod runs meanwhile", func() string {
		if got := l.onBoard("local"); len(got) != 1 || got["local-"+name] != "Running 1/1" {
			return strings.Join(sorted(got), " ")
		}
		return ""
	})
	l.says("there is no kubeconfig " + kubeconfigFile)
}

func (l lab) joinGood() {
	exit, stdout, _ := l.join("--server="+l.c.Server(), "--token="+l.c.Token(l.T), "--ca-cert-hash="+l.c.CAHash(l.T))
	if exit != 0 || !strings.Contains(stdout, "may join the cluster at "+l.c.Server()) {
		l.Errorf("it ended with %d and printed %q", exit, stdout)
	}
	l.until("the node is Ready", l.nodeReady)
	l.until("the static pod's mirror runs", func() string { return l.running("app=local", 1) })
	if got := l.sh("stat -c '%a %U' " + bootstrapFile + " " + kubeconfigFile); got != "600 root\n600 root" {
		l.Errorf("the kubeconfigs are %q", got)
	}
	if ca := l.sh("cat /etc/kubernetes/pki/ca.crt"); ca != strings.TrimSpace(string(l.c.CA())) {
		l.Errorf("the CA is %q", ca)
	}
}

func (l lab) joinAgain() {
	before := l.sh(joinFiles)
	agent := l.agent()
	exit, stdout, _ := l.join("--server="+l.c.Server(), "--token="+l.c.Token(l.T), "--ca-cert-hash="+l.c.CAHash(l.T))
	if exit != 0 || !strings.Contains(stdout, "already") {
		l.Errorf("it ended with %d and printed %q", exit, stdout)
	}
	if after := l.sh(joinFiles); after != before {
		l.Errorf("it changed files:\n%s\nwere\n%s", after, before)
	}
	if now := l.agent(); now != agent {
		l.Errorf("the agent is %s, and was %s", now, agent)
	}
}
