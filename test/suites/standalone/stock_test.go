//go:build board

package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// stockPods are a server behind an init container with probes of each kind,
// volumes and a host port, one that asks it by address, and one of a systemd or
// cgroupfs group with limits.
const stockPods = `apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: write, image: "localhost/busybox:1", command: [sh, -c, "echo stock > /www/index.html"], volumeMounts: [{name: www, mountPath: /www}]}
  containers:
  - name: httpd
    image: localhost/busybox:1
    command: [httpd, -f, -v, -p, "8080", -h, /www]
    ports: [{containerPort: 8080, hostPort: 8088}]
    startupProbe: {exec: {command: [test, -f, /www/index.html]}, periodSeconds: 1, failureThreshold: 60, timeoutSeconds: 30}
    readinessProbe: {httpGet: {path: /index.html, port: 8080}, periodSeconds: 2, timeoutSeconds: 30}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 10, timeoutSeconds: 30}
    resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {cpu: 500m, memory: 16Mi}}
    volumeMounts: [{name: www, mountPath: /www}, {name: settings, mountPath: /settings}]
  volumes:
  - {name: www, emptyDir: {}}
  - {name: settings, configMap: {name: settings}}
`

// TestStock runs pods with the container runtime that BOARD_STOCK names in its
// own configuration: nothing of tinylet's is on the board but the binary, its
// configuration, a unit or init script, and images.
func TestStock(t *testing.T) {
	stock := board.Stock(os.Getenv("BOARD_STOCK"))
	if stock == board.NotStock {
		t.Skip("boards of their own take long: make test-stock runs it, with BOARD_STOCK set")
	}
	image, disk, log := stockBoard(t, stock)
	n := bootImage(t, image, stockNode(t, disk), log)
	n.inOrder([]check{
		{"check finds no failure", stockChecks},
		{"pods run", stockRuns},
		{"exec and logs", stockSessions},
		{"the runtime restarts", stockRestarts},
		{"deleted pods leave nothing", stockDeletes},
	})
	n.put("server.yaml", stockPods)
	n.eventually(patience, "the pod runs again", isReady("server"))
	// Files that a boot is given are gone with it: the disk gets them for good.
	// The runtime does not write the results of CNI plugins to the disk: a power cut may leave
	// them empty.
	n.sh("cp /usr/bin/tinylet /usr/bin/.t && mv /usr/bin/.t /usr/bin/tinylet; for f in /var/lib/cni/results/*; do : > \"$f\" || exit 1; done; sync; sleep 1")
	n.vm.Kill()
	n = bootImage(t, image, board.VMOptions{Disk: disk, DiskCache: "none"}, log)
	n.eventually(patience, "the pod is back after a power cut without a network and with torn results of CNI plugins", isReady("server"))
	if left := n.sh("for f in /var/lib/cni/results/*; do [ -s \"$f\" ] || echo \"$f\"; done"); left != "" {
		t.Errorf("the agent has left torn results: containerd 1.7 cannot stop their sandboxes\n%s", left)
	}
	stockServes(n)
}

// stockBoard makes a board with a stock runtime and its disk; log prints the
// agent's log.
func stockBoard(t *testing.T, stock board.Stock) (image *board.Image, disk, log string) {
	t.Helper()
	image, err := board.Prepare(t.Context(), board.Options{Arch: arch(), Systemd: stock == board.StockDebian, Stock: stock, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	disk = filepath.Join(t.TempDir(), "disk.qcow2")
	if err := board.NewDisk(t.Context(), image, disk); err != nil {
		t.Fatal(err)
	}
	if stock == board.StockDebian {
		return image, disk, "journalctl -u tinylet -o cat --no-pager -n %d"
	}
	return image, disk, "tail -n %d " + agentLog
}

// stockNode is a board with the agent and its configuration.
func stockNode(t *testing.T, disk string, more ...board.File) board.VMOptions {
	t.Helper()
	return withAgent(t, board.VMOptions{Disk: disk, DiskCache: "none", Files: append(more,
		board.File{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(podConfig)},
		board.File{Path: objectsDir + "/base.yaml", Mode: 0o600, Data: []byte(baseObjects)},
	)})
}

// upgraded are the runtimes that replace Debian's containerd 1.7 in place.
var upgraded = []board.Stock{board.Stock20, board.Stock23}

// TestRuntimeUpgrade replaces containerd's programs while pods run and restarts
// it, as a package's upgrade does: from Debian's 1.7 to 2.0, and from that to
// 2.3. Pods go on, and are served by the shim that started them.
func TestRuntimeUpgrade(t *testing.T) {
	if os.Getenv("BOARD_STOCK") != string(board.StockDebian) {
		t.Skip("the upgrade starts with Debian's containerd: make test-stock runs it, with BOARD_STOCK=debian")
	}
	var programs []board.File
	for _, stock := range upgraded {
		files, err := board.RuntimeFiles(t.Context(), board.Options{Arch: arch(), Stock: stock, Progress: os.Stderr}, "/root/"+string(stock))
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, files...)
	}
	image, disk, log := stockBoard(t, board.StockDebian)
	o := stockNode(t, disk, programs...)
	o.MemoryMB = 1024 // the programs are in the initial file system twice, as its archive and unpacked
	n := bootImage(t, image, o, log)
	n.put("server.yaml", stockPods)
	before := n.eventually(patience, "the server is ready", isReady("server"))["server"]
	for i, stock := range upgraded {
		if !t.Run(string(stock), func(t *testing.T) { stockUpgrade(n.with(t), stock, before, i) }) {
			t.FailNow()
		}
	}
	n.clear()
}

// stockUpgrade installs a containerd over the one that runs; each upgrade leaves
// a pod behind that the next one has to keep, too.
func stockUpgrade(n node, stock board.Stock, before cli.PodDocument, round int) {
	const version = "ctr version | awk '/^Server/ {s = 1} s && /Version/ {print $2}'"
	old := n.sh(version)
	// As dpkg does: each file is replaced by a rename, then the unit is restarted.
	// The programs of the boards are built without sd_notify, which the unit waits for.
	n.sh("d=/etc/systemd/system/containerd.service.d; mkdir -p $d && printf '[Service]\\nType=exec\\n' > $d/type.conf && systemctl daemon-reload")
	n.sh("cd /root/%s && for f in *; do cp $f /usr/bin/.new-$f && mv /usr/bin/.new-$f /usr/bin/$f || exit 1; done && systemctl restart containerd", stock)
	n.sh("i=0; until v=$(%s 2>/dev/null) && [ -n \"$v\" ] && [ \"$v\" != %s ]; do [ $((i += 1)) -gt 120 ] && exit 1; sleep 1; done", version, old)
	// Each branch of containerd asks for another image of sandboxes: without an
	// uplink no pod starts until it is imported, and check reports that.
	if out, err := n.vm.Run(n.ctx, "tinylet", "check"); err != nil || !strings.Contains(string(out.Stdout), stock.SandboxImage()+" is not present") {
		n.Errorf("check does not report that the image %s is missing: %v\n%s", stock.SandboxImage(), err, out.Stdout)
	}
	n.sh("ctr -n k8s.io images tag %s %s", board.StockDebian.SandboxImage(), stock.SandboxImage())
	late := fmt.Sprintf("late-%d", round)
	n.put(late+".yaml", sleeper(late, 1))
	pods := n.eventually(patience, "a pod starts with the new runtime", isReady(late))
	n.Logf("from %s to %s\n%s", old, n.sh(version), n.sh("tinylet ps; tinylet status"))
	server := pods["server"]
	if b, a := before.Containers[0], server.Containers[0]; b.ID != a.ID || b.Restarts != a.Restarts || server.Ready != before.Ready {
		n.Errorf("the container did not go on: %+v, then %+v", b, a)
	}
	for name, p := range pods {
		if p.Status != "Running" || p.Ready != p.Total {
			n.Errorf("pod %s: %s, %d of %d ready", name, p.Status, p.Ready, p.Total)
		}
	}
	stockServes(n)
	stockSessions(n)
	stockChecks(n)
}

func isReady(name string) func(map[string]cli.PodDocument) string {
	return func(pods map[string]cli.PodDocument) string {
		if p := pods[name]; p.Status != "Running" || p.Ready != p.Total || p.Total == 0 {
			return fmt.Sprintf("%s is %q, %d of %d ready", name, p.Status, p.Ready, p.Total)
		}
		return ""
	}
}

// stockChecks allows warnings, such as of the runtime's version.
func stockChecks(n node) {
	n.sh("i=0; until ctr version > /dev/null 2>&1 || [ $((i += 1)) -gt 120 ]; do sleep 1; done")
	out, err := n.vm.Run(n.ctx, "tinylet", "check")
	if err != nil {
		n.Fatal(err)
	}
	n.Logf("\n%s", out.Stdout)
	if out.Exit != 0 {
		n.Errorf("exit code %d", out.Exit)
	}
	for _, want := range []string{"sandbox-image", "loopback-plugin", "network-plugin"} {
		if !strings.Contains(string(out.Stdout), want) {
			n.Errorf("there is no finding %s", want)
		}
	}
}

func stockRuns(n node) {
	n.put("server.yaml", stockPods)
	n.eventually(patience, "the server is ready", isReady("server"))
	stockServes(n)
	n.Logf("\n%s", n.sh("tinylet ps; tinylet net; tinylet status; ls -l /opt/cni/bin /usr/lib/cni 2>/dev/null; cat /etc/cni/net.d/10-tinylet.conflist"))
	out, err := n.vm.Run(n.ctx, "tinylet", "check")
	if err != nil || out.Exit != 0 {
		n.Errorf("check while a pod runs: %v, exit code %d\n%s", err, out.Exit, out.Stdout)
	}
}

// stockServes asks the server by its own address and by the host's port, and has
// it reach its own loopback interface.
func stockServes(n node) {
	n.Helper()
	pods, err := n.pods()
	if err != nil {
		n.Fatal(err)
	}
	ip := pods["server"].PodIP
	for _, script := range []string{
		"wget -q -O - http://" + ip + ":8080/",
		"wget -q -O - http://127.0.0.1:8088/",
		"tinylet exec server -c httpd -- wget -q -O - http://127.0.0.1:8080/",
	} {
		if got := n.sh("%s", script); got != "stock" {
			n.Errorf("%s prints %q", script, got)
		}
	}
}

func stockSessions(n node) {
	if got := n.sh("tinylet exec server -c httpd -- cat /settings/color"); got != "blue" {
		n.Errorf("the ConfigMap's volume has %q", got)
	}
	if got := n.sh("tinylet exec server -c httpd -- sh -c 'exit 7'; echo $?"); got != "7" {
		n.Errorf("exit code %s, want 7", got)
	}
	if got := n.sh("tinylet logs server -c httpd --tail 1"); !strings.Contains(got, "200") {
		n.Errorf("log: %q", got)
	}
	if got := n.sh("tinylet top | grep -c server"); got == "0" {
		n.Error("top does not show the pod")
	}
}

// stockRestarts restarts the runtime: the container goes on running.
func stockRestarts(n node) {
	before, err := n.pods()
	if err != nil {
		n.Fatal(err)
	}
	n.sh("if [ -d /run/systemd/system ]; then systemctl restart containerd; else /etc/init.d/S40containerd restart; fi")
	time.Sleep(5 * time.Second)
	after := n.eventually(patience, "the pod is ready after a restart of the runtime", isReady("server"))
	if b, a := before["server"].Containers[0], after["server"].Containers[0]; b.ID != a.ID || b.Restarts != a.Restarts {
		n.Errorf("the container was started anew: %+v, then %+v", b, a)
	}
	n.put("late.yaml", sleeper("late", 2))
	n.eventually(patience, "a pod starts after a restart of the runtime", isReady("late"))
}

func stockDeletes(n node) {
	n.clear()
	if got := n.sh("ls /run/netns /var/run/netns 2>/dev/null | grep -c cni- || true"); got != "0" {
		n.Errorf("%s network namespaces are left", got)
	}
}
