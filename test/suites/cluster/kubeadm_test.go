//go:build cluster

package cluster

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
)

// preflightIgnored are the checks of kubeadm that the emulated board cannot
// pass, each with the reason.
var preflightIgnored = []string{
	// Its kernel is Debian's, which has its configuration in /boot alone, and
	// the board has no /boot: QEMU loads the kernel.
	"SystemVerification",
}

// joinedName is the node's name. It is not the board's, so that kubeadm has a flag
// to hand to the agent.
const joinedName = "edge-joined"

// kubeadmBoard is what the board has besides tinylet.
var kubeadmBoard = []board.File{
	{Path: "/usr/bin/kubeadm", Mode: 0o755, Source: filepath.Join("..", "..", "..", ".cache", "cluster", "kubeadm-arm64")},
	// As files for systemd may be: a value with a space, without quotes.
	{Path: "/etc/default/kubelet", Mode: 0o644, Data: []byte("KUBELET_EXTRA_ARGS=--node-labels=disk=flash --v=2\n")},
}

// TestKubeadmJoin joins a board with the stock kubeadm, as a kubelet would be
// joined: it begins as a board without an API server, and has nothing of a
// cluster.
func TestKubeadmJoin(t *testing.T) {
	l := prepareLab(t)
	l.foreignSettings()
	l.vm = l.bootWith(kubeadmBoard)
	for _, step := range []struct {
		name string
		test func(lab)
	}{
		{"join", lab.kubeadmJoin},
		{"files", lab.kubeadmFiles},
		{"node", lab.kubeadmNode},
		{"pods", lab.kubeadmPods},
		{"restart without a bootstrap file", lab.kubeadmRestart},
		{"power cut and reset", lab.kubeadmPowerCut},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(l.with(t)) }) {
			break
		}
	}
	for _, e := range l.c.Refused(t) {
		// kubeadm looks for the settings of kube-proxy, which this cluster lacks.
		if !strings.HasPrefix(e.UserAgent, "kubeadm/") || e.Object.Name != "kube-proxy" {
			t.Errorf("the cluster refused %+v", e)
		}
	}
}

// foreignSettings has the cluster tell its nodes what holds on a machine with
// systemd, and not on the board.
func (l lab) foreignSettings() {
	l.Helper()
	var settings corev1.ConfigMap
	l.c.Get(l.T, &settings, "configmap", "kubelet-config", "--namespace=kube-system")
	kubelet := settings.Data["kubelet"]
	if !strings.Contains(kubelet, "cgroupDriver: systemd\n") {
		l.Fatalf("the cluster's settings name no cgroup driver of systemd:\n%s", kubelet)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{
		"kubelet": kubelet + "resolvConf: /run/systemd/resolve/resolv.conf\n",
	}})
	if err != nil {
		l.Fatal(err)
	}
	l.c.Must(l.T, "patch", "configmap", "kubelet-config", "--namespace=kube-system", "--patch="+string(patch))
}

// kubeadmJoin runs kubeadm. It cannot restart the agent without systemd or
// OpenRC, so this is done for it when it has written the last of its files.
func (l lab) kubeadmJoin() {
	if err := l.vm.WaitContainerd(l.Context()); err != nil {
		l.Fatal(err)
	}
	var said bytes.Buffer
	join, err := l.vm.Start(l.Context(), board.Cmd{
		Argv: []string{
			"kubeadm", "join", strings.TrimPrefix(l.c.Server(), "https://"), "--token=" + l.c.Token(l.T),
			"--discovery-token-ca-cert-hash=" + l.c.CAHash(l.T), "--node-name=" + joinedName, "--v=1",
			"--ignore-preflight-errors=" + strings.Join(preflightIgnored, ","),
		},
		Stdout: &said, Stderr: &said,
	})
	if err != nil {
		l.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = join.Wait() // asked again below
	}()
	start := time.Now()
	l.until("kubeadm has written its files", func() string {
		select {
		case <-ended:
			l.Fatalf("kubeadm join ended early:\n%s", said.String())
		default:
		}
		return l.sh("[ -s /var/lib/kubelet/kubeadm-flags.env ] || echo not yet")
	})
	l.sh("/etc/init.d/S50tinylet restart")
	exit, err := join.Wait()
	if err != nil {
		l.Fatal(err)
	}
	l.Logf("kubeadm join took %.1f s and said:\n%s", time.Since(start).Seconds(), said.String())
	if exit != 0 {
		l.Fatalf("kubeadm join ended with exit code %d", exit)
	}
	if !strings.Contains(said.String(), "This node has joined the cluster") {
		l.Error("kubeadm join does not say that the node has joined")
	}
}

// kubeadmFiles looks at what a joined node has on its disk.
func (l lab) kubeadmFiles() {
	if got := l.sh("ls /etc/kubernetes/bootstrap-kubelet.conf 2> /dev/null || true"); got != "" {
		l.Errorf("the bootstrap file is still there: %s", got)
	}
	if got := l.arguments(); !strings.Contains(got, " --config=/var/lib/kubelet/config.yaml ") {
		l.Errorf("the agent runs as %q", got)
	}
	settings := l.sh("cat /var/lib/kubelet/config.yaml")
	for _, want := range []string{"cgroupDriver: systemd\n", "resolvConf: /run/systemd/resolve/resolv.conf\n"} {
		if !strings.Contains(settings, want) {
			l.Errorf("the node's settings lack %q:\n%s", want, settings)
		}
	}
	const current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	pem, err := l.vm.Get(l.Context(), current)
	if err != nil {
		l.Fatal(err)
	}
	pair, err := tls.X509KeyPair(pem, pem)
	if err != nil {
		l.Fatalf("read %s: %v", current, err)
	}
	if who := pair.Leaf.Subject.CommonName; who != "system:node:"+joinedName {
		l.Errorf("the certificate is that of %q", who)
	}
	conf := l.sh("cat /etc/kubernetes/kubelet.conf")
	for _, want := range []string{l.c.Server(), current} {
		if !strings.Contains(conf, want) {
			l.Errorf("kubelet.conf does not name %s:\n%s", want, conf)
		}
	}
	if code := l.as(pair, "/api/v1/nodes/"+joinedName); code != http.StatusOK {
		l.Errorf("the node reads itself with its certificate: status %d", code)
	}
	// kubeadm itself works with the file.
	l.sh("kubeadm upgrade node phase kubelet-config --dry-run --kubeconfig=/etc/kubernetes/kubelet.conf")
}

// arguments is how the agent runs.
func (l lab) arguments() string {
	l.Helper()
	return l.sh("tr '\\0' ' ' < /proc/" + agentPID + "/cmdline")
}

// as is the status of a request with a certificate.
func (l lab) as(pair tls.Certificate, path string) int {
	l.Helper()
	transport := l.c.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	transport.DisableKeepAlives = true
	req, err := http.NewRequestWithContext(l.Context(), http.MethodGet, l.c.Server()+path, nil)
	if err != nil {
		l.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		l.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // the status is all
	return res.StatusCode
}

func (l lab) kubeadmNode() {
	l.until("the node is Ready", l.nodeReady)
	var n corev1.Node
	l.c.Get(l.T, &n, "node", joinedName)
	if n.Labels["disk"] != "flash" {
		l.Errorf("labels %v lack that of /etc/default/kubelet", n.Labels)
	}
}

// kubeadmPods runs a pod with the cluster's name servers and one with the
// node's, of which there are none.
func (l lab) kubeadmPods() {
	const sleeps = "exec sleep 100000"
	l.c.Apply(l.T, single("joined", sleeps))
	l.c.Apply(l.T, strings.Replace(single("nodedns", sleeps), "spec:\n", "spec:\n  dnsPolicy: Default\n", 1))
	l.until("both run", func() string { return l.running("app in (joined,nodedns)", 2) })
	// The runtime says cgroupfs; a tree of systemd's would have other names.
	for _, p := range l.pods("app in (joined,nodedns)") {
		folder := "/sys/fs/cgroup/kubepods/besteffort/pod" + string(p.UID)
		if got := l.sh("[ -d " + folder + " ] || find /sys/fs/cgroup -maxdepth 3 -name '*pod*'"); got != "" {
			l.Errorf("pod %s has no cgroup %s; there are\n%s", p.Name, folder, got)
		}
	}
	for pod, want := range map[string]string{"joined": "nameserver 10.96.0.10", "nodedns": "options ndots:1"} {
		id := strings.TrimPrefix(l.pods("app=" + pod)[0].Status.ContainerStatuses[0].ContainerID, "containerd://")
		got := l.sh("ctr -n k8s.io task exec --exec-id dns " + id + " cat /etc/resolv.conf")
		if !strings.Contains(got, want) || pod == "nodedns" && strings.Contains(got, "nameserver") {
			l.Errorf("pod %s has the resolv.conf\n%s\nwant %q", pod, got, want)
		}
	}
}

func (l lab) kubeadmRestart() {
	before := restarts(l.pods("app in (joined,nodedns)"))
	l.sh("/etc/init.d/S50tinylet restart")
	l.renewed()
	l.c.Apply(l.T, single("later", "exec sleep 100000"))
	l.until("a new pod runs", func() string { return l.running("app=later", 1) })
	l.until("the node is Ready", l.nodeReady)
	if diff := cmp.Diff(before, restarts(l.pods("app in (joined,nodedns)"))); diff != "" {
		l.Errorf("containers (-before +after):\n%s", diff)
	}
}

// renewed waits for a sign of life of the node that is newer than the call.
func (l lab) renewed() {
	l.Helper()
	since := time.Now()
	l.until("the lease is renewed", func() string {
		var lease coordinationv1.Lease
		l.c.Get(l.T, &lease, "lease", joinedName, "--namespace=kube-node-lease")
		if at := lease.Spec.RenewTime.Time; !at.After(since) {
			return fmt.Sprintf("it is %v too old", since.Sub(at))
		}
		return ""
	})
}

// kubeadmPowerCut boots the joined board again, and then takes it out of the
// cluster: it is a board without an API server again.
func (l lab) kubeadmPowerCut() {
	l.sh("sync")
	l.vm.Kill()
	l.vm = l.bootWith(kubeadmBoard)
	l.renewed()
	l.until("the pods run", func() string { return l.running("app in (joined,nodedns,later)", 3) })
	l.until("the node is Ready", l.nodeReady)

	l.sh("/etc/init.d/S50tinylet stop")
	l.Logf("kubeadm reset said:\n%s", l.sh("kubeadm reset --force 2>&1"))
	if got := l.sh("ctr -n k8s.io containers ls -q; ls /var/lib/kubelet/config.yaml /etc/kubernetes/kubelet.conf 2> /dev/null || true"); got != "" {
		l.Errorf("after kubeadm reset the board still has\n%s", got)
	}
	l.sh("/etc/init.d/S50tinylet start")
	l.until("the agent answers", func() string {
		return l.sh("wget -q -O /dev/null http://127.0.0.1:10248/healthz || echo not yet")
	})
	if got := l.arguments(); !strings.HasSuffix(got, "--config /etc/tinylet/config.yaml") {
		l.Errorf("the agent runs as %q", got)
	}
}
