//go:build cluster

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/bench/round"
	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

// patience is how long anything may take on an emulated board.
const patience = 15 * time.Minute

// agent is what makes a board a node.
type agent struct {
	label   string // its name in a burst's table
	program string // its name on the board, in /usr/bin
	binary  string // on the host
}

var (
	tinylet = agent{"tinylet", "tinylet", filepath.Join("..", "..", "bin", "tinylet-arm64")}
	kubelet = agent{"kubelet", "stock-kubelet", filepath.Join("..", "..", ".cache", "kubelet", "kubelet-arm64")}
)

// config is of both agents, in the terms that both know.
const config = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /etc/kubernetes/manifests
cgroupDriver: cgroupfs
failSwapOn: false
authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
rotateCertificates: true
`

// defaultContainerd is what containerd needs on the board when all else is
// its own default.
const defaultContainerd = `version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "crun"
  SystemdCgroup = false
`

// stockPlugins are what sets up pods' networks beside a stock kubelet.
var stockPlugins = []string{"bridge", "host-local", "loopback", "portmap"}

// stockNetwork is by the upstream plugins what tinylet's own network is.
const stockNetwork = `{"cniVersion": "1.0.0", "name": "stock", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "dataDir": "/run/cni/networks", "ranges": [[{"subnet": "10.88.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
`

// stockFiles are the pod network of a board whose agent configures none: a stock
// kubelet, or no agent. One with tinylet does not need them.
func stockFiles() []board.File {
	files := []board.File{{Path: "/etc/cni/net.d/10-stock.conflist", Mode: 0o644, Data: []byte(stockNetwork)}}
	for _, plugin := range stockPlugins {
		path := "/usr/lib/cni/" + plugin
		files = append(files,
			board.File{Path: path, Mode: 0o755, Source: filepath.Join(filepath.Dir(kubelet.binary), "cni", plugin)},
			board.File{Path: "/opt/cni/bin/" + plugin, Link: path}, // containerd's default directory
		)
	}
	return files
}

// arguments are of both agents. The image's init script starts what DAEMON
// names, so that both begin, and write their logs, alike.
const arguments = `DAEMON=%s
TINYLET_ARGS="--config /etc/tinylet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubelet.conf"
`

// node is a board that runs.
type node struct {
	*testing.T
	c       *controlplane.Cluster
	vm      *board.VM
	name    string
	program string
}

// lines is a test's log as a writer of lines.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// files are what a board needs to join with an agent.
func (a agent) files(t *testing.T, c *controlplane.Cluster) []board.File {
	return []board.File{
		{Path: "/usr/bin/" + a.program, Mode: 0o755, Source: a.binary},
		{Path: "/etc/default/tinylet", Mode: 0o644, Data: fmt.Appendf(nil, arguments, a.program)},
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(config)},
		{Path: "/etc/kubernetes/pki/ca.crt", Mode: 0o644, Data: c.CA()},
		{Path: "/etc/kubernetes/bootstrap-kubelet.conf", Mode: 0o600, Data: c.Bootstrap(c.Server(), c.Token(t))},
	}
}

// boot starts a fresh board of 512 MB.
func boot(t *testing.T, c *controlplane.Cluster, im *board.Image, name, program string, files []board.File) node {
	t.Helper()
	return bootWith(t, c, im, name, program, board.VMOptions{MemoryMB: 512, Files: files})
}

func bootWith(t *testing.T, c *controlplane.Cluster, im *board.Image, name, program string, o board.VMOptions) node {
	t.Helper()
	o.CPUs, o.Network = 2, c.BoardNet(t, name)
	vm, err := board.Boot(t.Context(), im, o)
	if err != nil {
		t.Fatal(err)
	}
	n := node{T: t, c: c, vm: vm, name: name, program: program}
	t.Cleanup(n.close)
	if err := vm.WaitBooted(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := vm.WaitContainerd(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// close keeps the logs and ends a board that is a node of the cluster.
func (n node) close() {
	n.end()
	n.c.Gone(n.T, n.name)
}

// end keeps the logs as artifacts, shows them after a failure, and ends the
// board.
func (n node) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.Context()), 20*time.Second)
	defer cancel()
	for _, name := range []string{n.program, "containerd"} {
		log, err := n.vm.Get(ctx, "/var/log/"+name+".log")
		if err != nil {
			continue // a board without an agent has no log of it
		}
		if err := os.WriteFile(filepath.Join(n.ArtifactDir(), name+".log"), log, 0o644); err != nil {
			n.Error(err)
		}
		if n.Failed() {
			n.Logf("end of %s's log:\n%s", name, log[max(0, len(log)-6000):])
		}
	}
	if err := n.vm.Close(); err != nil {
		n.Error(err)
	}
}

// join waits until the node is Ready and returns what it tells of itself.
func (n node) join() corev1.NodeSystemInfo {
	n.Helper()
	began, said := time.Now(), ""
	for time.Since(began) < patience {
		var nodes corev1.NodeList
		n.c.Get(n.T, &nodes, "nodes", "--field-selector=metadata.name="+n.name)
		for _, found := range nodes.Items {
			for _, c := range found.Status.Conditions {
				if c.Type != corev1.NodeReady {
					continue
				}
				if c.Status == corev1.ConditionTrue {
					n.Logf("the node is Ready, %.0f s after containerd was up", time.Since(began).Seconds())
					return found.Status.NodeInfo
				}
				said = c.Reason + ": " + c.Message
			}
		}
		n.rest(time.Second)
	}
	n.Fatalf("the node is not Ready within %v: %s", patience, said)
	return corev1.NodeSystemInfo{}
}

// rest waits.
func (n node) rest(d time.Duration) {
	n.Helper()
	select {
	case <-time.After(d):
	case <-n.Context().Done():
		n.Fatal(context.Cause(n.Context()))
	}
}

// sh runs a script on the board and answers what it printed.
func (n node) sh(script string) string {
	n.Helper()
	out, err := n.vm.Shell(n.Context(), script)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

func (n node) sample() *sample {
	n.Helper()
	s, err := parseSample(n.sh(sampleScript))
	if err != nil {
		n.Fatal(err)
	}
	return s
}

// samples are of the two ends of a window and of its middle.
func (n node) samples(window time.Duration) []*sample {
	n.Helper()
	out := []*sample{n.sample()}
	for range 2 {
		n.rest(window / 2)
		out = append(out, n.sample())
	}
	return out
}

// buildBare builds the bare client for boards.
func buildBare(t *testing.T) string {
	t.Helper()
	env, err := board.ARM64.GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "bare")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./bare")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return program
}

// bare has the bare client start and stop pods.
func (n node) bare(pods, rounds int) []round.Times {
	n.Helper()
	argv := []string{"bare", "--image", board.BusyboxImage, "--pods", fmt.Sprint(pods), "--rounds", fmt.Sprint(rounds), "--"}
	out, err := n.vm.Must(n.Context(), append(argv, command...)...)
	if err != nil {
		n.Fatal(err)
	}
	var times []round.Times
	if err := json.NewDecoder(bytes.NewReader([]byte(out))).Decode(&times); err != nil {
		n.Fatalf("read what the bare client tells: %v", err)
	}
	return times
}
