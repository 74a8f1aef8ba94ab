//go:build cluster

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

// patience is how long a check waits for what a fast board does in a second.
const patience = 4 * time.Minute

const name = "edge-one"

// arch is the board that this run tests.
func arch() board.Arch {
	if a := os.Getenv("BOARD_ARCH"); a != "" {
		return board.Arch(a)
	}
	return board.ARM64
}

// binary is the agent that is tested.
func binary() string { return filepath.Join("..", "..", "..", "bin", "tinylet-"+string(arch())) }

// lab is a control plane with one board.
type lab struct {
	*testing.T
	c    *controlplane.Cluster
	im   *board.Image
	vm   *board.VM
	disk string
	date time.Time // the board's clock when it starts; zero is the present

	name     string         // of the board and its node; empty is edge-one
	second   *board.Network // of the board's second network card; nil: it has none
	settings string         // more documents of the agent's configuration
	memoryMB int            // of the board; 0 is 512
	cmdline  string         // more of the kernel's command line
	systemd  bool           // is the board's process 1, as BOARD_SYSTEMD asks for
}

// with is the lab for a subtest.
func (l lab) with(t *testing.T) lab {
	l.T = t
	return l
}

// lines is a test's log as a writer of lines.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// newLab starts a control plane and boots a board that has a bootstrap token.
func newLab(t *testing.T) lab {
	t.Helper()
	l := prepareLab(t)
	l.vm = l.boot(l.bootstrap())
	return l
}

// prepareLab starts a control plane and makes the disk of a board.
func prepareLab(t *testing.T) lab {
	t.Helper()
	stock := board.Stock(os.Getenv("BOARD_STOCK"))
	return prepareBoard(t, board.Options{Systemd: os.Getenv("BOARD_SYSTEMD") != "" || stock == board.StockDebian, Stock: stock})
}

// prepareBoard starts a control plane and makes the disk of a board of this kind.
func prepareBoard(t *testing.T, o board.Options) lab {
	t.Helper()
	l := lab{T: t, c: controlplane.Start(t, controlplane.Options{}), systemd: o.Systemd}
	o.Arch, o.Progress = arch(), lines{t}
	im, err := board.Prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l.im = im
	return l.beside("")
}

// beside makes the disk of another board of the same cluster.
func (l lab) beside(name string) lab {
	l.Helper()
	l.name, l.disk = name, filepath.Join(l.TempDir(), "disk.qcow2")
	if err := board.NewDisk(l.Context(), l.im, l.disk); err != nil {
		l.Fatal(err)
	}
	return l
}

// network is where the board is attached.
func (l lab) network() *board.Network {
	l.Helper()
	return l.c.BoardNet(l.T, cmp.Or(l.name, name))
}

// config is the agent's.
const config = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /etc/kubernetes/manifests
cgroupDriver: cgroupfs
failSwapOn: false
authentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
rotateCertificates: true
`

const arguments = `TINYLET_ARGS="--config /etc/tinylet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubelet.conf --node-labels=disk=flash"
`

// bootstrap is the kubeconfig of a bootstrap token, as kubeadm writes it.
func (l lab) bootstrap() []byte { return l.kubeconfig(l.c.Server(), l.c.Token(l.T)) }

// kubeconfig is one of a bootstrap token at any address of the API server.
func (l lab) kubeconfig(server, token string) []byte {
	return l.c.Bootstrap(server, token)
}

// boot starts the board on the lab's disk. The network comes with it, unless
// it is partitioned.
func (l lab) boot(bootstrap []byte) *board.VM {
	l.Helper()
	return l.bootWith(l.joinFiles(bootstrap))
}

// joinFiles are the files of a board that is to join, with a bootstrap
// kubeconfig unless it has joined already.
func (l lab) joinFiles(bootstrap []byte) []board.File {
	files := []board.File{
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(config + l.settings)},
		{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte(arguments)},
		{Path: "/etc/kubernetes/pki/ca.crt", Mode: 0o644, Data: l.c.CA()},
	}
	if bootstrap != nil {
		files = append(files, board.File{Path: "/etc/kubernetes/bootstrap-kubelet.conf", Mode: 0o600, Data: bootstrap})
	}
	return files
}

// bootWith starts the board with tinylet and more files.
func (l lab) bootWith(files []board.File) *board.VM {
	l.Helper()
	return l.start(slices.Concat(board.TinyletFiles(binary()), files))
}

// reboot starts the board with what is on its disk, as boards do: what a boot
// is given is unpacked into memory first, which takes it seconds.
func (l lab) reboot() *board.VM {
	l.Helper()
	return l.start(nil)
}

func (l lab) start(files []board.File) *board.VM {
	l.Helper()
	vm, err := board.Boot(l.Context(), l.im, board.VMOptions{
		MemoryMB: cmp.Or(l.memoryMB, 512), Disk: l.disk, Files: files, Network: l.network(), Second: l.second, Date: l.date, ExtraCmdline: l.cmdline,
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		l.keepLogs(vm)
		if err := vm.Close(); err != nil {
			l.Error(err)
		}
	})
	if err := vm.WaitBooted(l.Context()); err != nil {
		l.Fatal(err)
	}
	return vm
}

// service is the shell's command to start, stop or restart the agent.
func (l lab) service(verb string) string {
	if l.systemd {
		return "systemctl " + verb + " tinylet"
	}
	return "/etc/init.d/S50tinylet " + verb
}

// agentLog is the shell's command for what the agent has logged.
func (l lab) agentLog() string {
	if l.systemd {
		return "journalctl -u tinylet -o cat --no-pager"
	}
	return "cat /var/log/tinylet.log"
}

// group is the shell's word for a pod's cgroup, by either driver.
func group(p *corev1.Pod) string {
	return fmt.Sprintf("$(find /sys/fs/cgroup/kubepods* -maxdepth 2 -name '*pod%s*')", strings.ReplaceAll(string(p.UID), "-", "?"))
}

// keepLogs keeps what the board said as artifacts, and shows its end after a
// failure.
func (l lab) keepLogs(vm *board.VM) {
	select {
	case <-vm.Ended(): // the test cut its power
		return
	default:
	}
	// A board that is at its limit, which is when a test fails, answers late.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), 2*time.Minute)
	defer cancel()
	out, err := vm.Run(ctx, "sh", "-c", l.agentLog()+"; tinylet ps; tinylet events; cat /proc/loadavg /proc/meminfo | head -4")
	if err != nil {
		l.Logf("no log of the board: %v", err)
		return
	}
	path := filepath.Join(l.ArtifactDir(), cmp.Or(l.name, "tinylet")+".log")
	if err := os.WriteFile(path, out.Stdout, 0o644); err != nil {
		l.Error(err)
	}
	if l.Failed() {
		l.Logf("end of tinylet's log:\n%s", out.Stdout[max(0, len(out.Stdout)-8000):])
	}
}

// until waits for what to be without complaint.
func (l lab) until(what string, missing func() string) {
	l.Helper()
	start := time.Now()
	for {
		m := missing()
		if m == "" {
			l.Logf("%s: after %.1f s", what, time.Since(start).Seconds())
			return
		}
		if time.Since(start) > patience {
			l.Fatalf("not within %v: %s: %s", patience, what, m)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// pods are the cluster's pods that labels select, in the namespace default.
func (l lab) pods(selector string) []corev1.Pod {
	l.Helper()
	var list corev1.PodList
	l.c.Get(l.T, &list, "pods", "--selector="+selector)
	return list.Items
}

// running counts the pods that run and are ready, and says what the others do.
func (l lab) running(selector string, want int) string {
	l.Helper()
	var others []string
	n := 0
	for _, p := range l.pods(selector) {
		if p.DeletionTimestamp == nil && ready(&p) {
			n++
			continue
		}
		others = append(others, p.Name+" "+string(p.Status.Phase)+" "+waiting(&p))
	}
	if n == want && len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d run; %s", n, want, strings.Join(others, ", "))
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func waiting(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			return s.State.Waiting.Reason
		}
	}
	return ""
}

// nodesReady says whether that many Nodes are Ready.
func (l lab) nodesReady(want int) string {
	l.Helper()
	var nodes corev1.NodeList
	l.c.Get(l.T, &nodes, "nodes")
	n := 0
	for _, node := range nodes.Items {
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			n++
		}
	}
	if n == want {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes are Ready", n, len(nodes.Items))
}

// nodeReady says whether the Node is Ready, or what it is instead.
func (l lab) nodeReady() string {
	l.Helper()
	var nodes corev1.NodeList
	l.c.Get(l.T, &nodes, "nodes")
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				if c.Status == corev1.ConditionTrue {
					return ""
				}
				return c.Reason + ": " + c.Message
			}
		}
	}
	return fmt.Sprintf("%d nodes, none tells", len(nodes.Items))
}

// restarts is how often the containers of pods were started anew, by UID.
func restarts(pods []corev1.Pod) map[string]string {
	out := make(map[string]string)
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			out[string(p.UID)+"/"+s.Name] = fmt.Sprintf("%s restarts %d", s.ContainerID, s.RestartCount)
		}
	}
	return out
}

// sh runs a script on the board and answers what it printed.
func (l lab) sh(script string) string {
	l.Helper()
	out, err := l.vm.Shell(l.Context(), script)
	if err != nil {
		l.Fatal(err)
	}
	return out
}

// put writes a file of the board, as an editor does: a new file, renamed.
func (l lab) put(path, text string) {
	l.Helper()
	if err := l.vm.Put(l.Context(), path, strings.NewReader(text), 0o644); err != nil {
		l.Fatal(err)
	}
}
