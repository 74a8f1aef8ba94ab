//go:build cluster

package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
)

const (
	pods    = 10
	testpod = "localhost/testpod:1"
)

// TestImage boots the image for the first time, with a provisioning file on its boot
// partition: the board joins a real control plane, has the layout of the documentation, runs
// ten pods, and has them again after each of ten power cuts.
func TestImage(t *testing.T) {
	l := newLab(t)
	l.putProvisioning(l.provisioning())
	disk := l.newDisk()
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"first boot", func() { l.firstBoot(disk) }},
		{"layout", l.layout},
		{"check", l.check},
		{"pods", l.startPods},
		{"power cuts", func() { l.powerCuts(disk, int(board.Number(t, "CUTS", 10))) }},
		{"shutdown", func() { l.shutdown(disk) }},
	} {
		if !l.step(step.name, step.run) && step.name != "layout" && step.name != "check" {
			return
		}
	}
}

func (l *lab) firstBoot(disk string) {
	l.power(disk)
	l.up()
	answers := time.Since(l.began)
	l.nodeReady(name)
	l.Logf("%s: SSH after %.1f s, Ready after %.1f s", "first boot", answers.Seconds(), time.Since(l.began).Seconds())
}

// TestKubeconfig provisions a second card with the kubeconfig of a node that has joined.
func TestKubeconfig(t *testing.T) {
	l := newLab(t)
	l.putProvisioning(l.provisioning())
	disk := l.newDisk()
	l.firstBoot(disk)
	encoded := func(file string) string { return strings.TrimSpace(l.sh("base64 -w 0 " + file)) }
	ca, pair := encoded("/etc/kubernetes/pki/ca.crt"), encoded("/var/lib/kubelet/pki/kubelet-client-current.pem")
	l.vm.Kill()
	<-l.vm.Ended()
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
contexts: [{name: c, context: {cluster: c, user: node}}]
current-context: c
users: [{name: node, user: {client-certificate-data: %s, client-key-data: %[3]s}}]
`, l.c.Server(), ca, pair)
	text, _, _ := strings.Cut(l.provisioning(), "join:")
	l.putProvisioning(text + "kubeconfig: |\n  " + strings.ReplaceAll(strings.TrimSpace(kubeconfig), "\n", "\n  ") + "\n")
	l.c.Must(t, "delete", "node", name)
	second := filepath.Join(t.TempDir(), "second.qcow2")
	if err := board.NewDisk(t.Context(), l.im, second); err != nil {
		t.Fatal(err)
	}
	l.firstBoot(second)
	if got := l.sh("ls -l /etc/kubernetes/kubelet.conf | cut -c 1-10; tr -d '\\0' < /dev/vda1 | grep -c client-key-data; true"); got != "-rw-------\n0\n" {
		l.Errorf("the mode of the kubeconfig, and how often the boot partition has its key: %q", got)
	}
	l.startPods()
}

// layout checks the board against docs/install/buildroot.md.
func (l *lab) layout() {
	for _, row := range []struct{ what, script, want string }{
		{"host name", "hostname", name},
		{"host name resolves", "grep -c '^127.0.1.1[[:space:]]" + name + "$' /etc/hosts", "1"},
		{"time zone", "date +%Z | grep -E '^CES?T$' > /dev/null && echo yes", "yes"},
		{"machine ID", "grep -cE '^[0-9a-f]{32}$' /etc/machine-id", "1"},
		{"root file system", "grep ' / ' /proc/mounts | cut -d ' ' -f 3,4 | cut -d , -f 1 | tail -n 1", "erofs ro"},
		{"root directory cannot be written", "touch /x 2> /dev/null || echo no", "no"},
		{"data partition", "grep ' /data ' /proc/mounts | cut -d ' ' -f 3", "ext4"},
		{"data partition was grown", "[ $(df -k /data | awk 'END { print $2 }') -gt 2000000 ] && echo yes", "yes"},
		{"the agent's state is on it", "grep -E ' (/opt|/var/lib|/var/lib/kubelet|/var/lib/containerd) ' /proc/mounts | cut -d ' ' -f 3 | xargs", "overlay overlay ext4 ext4"},
		{"logs of containers are on it", "grep ' /var/log/pods ' /proc/mounts | cut -d ' ' -f 3", "ext4"},
		{"the log is in memory", "grep ' /var/log ' /proc/mounts | cut -d ' ' -f 3", "tmpfs"},
		{"swap is in memory", "grep -c /dev/zram0 /proc/swaps", "1"},
		{"boot partition is read-only", "grep ' /boot ' /proc/mounts | cut -d ' ' -f 4 | cut -d , -f 1", "ro"},
		{"provisioning file is overwritten", "head -n 1 /boot/tinylet.yaml | cut -c 1-21", "# tinylet has applied"},
		{"no secret is on the boot partition", "tr -d '\\0' < /dev/vda1 | grep -c caCertHashes", "0"},
		{"the request to join is gone", "[ -e /etc/kubernetes/join.json ] || echo gone", "gone"},
		{"no user has a password", "cut -d : -f 2 /etc/shadow | grep -cvE '^[*!x]?$'", "0"},
		{"no login on the console", "ps | grep -c '[g]etty'", "0"},
		{"what starts after the agent", "ls /etc/init.d | sed -n '/S50tinylet/,$p' | xargs", "S50tinylet S51chronyd S51dropbear S52join rcK rcS"},
		{"scripts that start SSH", "ls /etc/init.d | grep -c dropbear", "1"},
		{"listening ports", "netstat -ltn | awk '/^tcp/ { n = split($4, a, \":\"); if ($4 !~ /^127|^::1/) print a[n] }' | sort -nu | tr '\\n' ' '", "22 10250"},
		{"sysctl", "cat /proc/sys/kernel/kptr_restrict /proc/sys/net/ipv4/ip_forward | tr '\\n' ' '", "1 1"},
		{"containerd knows each key of its configuration", "grep -ci 'unknown key' /var/log/messages; true", "0"},
	} {
		ctx, cancel := context.WithTimeout(l.Context(), patience)
		out, err := l.ssh(ctx, nil, row.script)
		cancel()
		if got := strings.TrimSpace(out); got != row.want {
			l.Errorf("%s: %q, want %q (%v)", row.what, got, row.want, err)
		}
	}
	cmd := l.c.Beside(l.T, l.Context(), "ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "PubkeyAuthentication=no", "-v", "root@"+l.net.Address.Addr().String(), "true")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied (publickey)") {
		l.Errorf("login without a key: %v\n%s", err, out)
	}
	l.Log(l.sh("df -h / /data; cat /proc/mounts; free; tinylet version -o json | head -c 400; containerd --version; crun --version | head -n 1"))
}

// check requires that tinylet check has nothing to say about the project's own image.
func (l *lab) check() {
	out := l.sh("tinylet check -o json; true")
	var report struct {
		Findings []struct{ ID, Level, What, Remedy string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Findings) == 0 {
		l.Fatalf("%v\n%s", err, out)
	}
	for _, f := range report.Findings {
		// A board without a TPM has no storage for a key that the card does not have too.
		if f.Level != "ok" && f.ID != "journal" {
			l.Errorf("%s %s: %s; %s", f.Level, f.ID, f.What, f.Remedy)
		}
	}
}

// startPods brings an image to the board and starts ten pods of it.
func (l *lab) startPods() {
	program := filepath.Join(l.TempDir(), "testpod")
	env, err := l.im.Arch.GoEnv()
	if err != nil {
		l.Fatal(err)
	}
	build := exec.CommandContext(l.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "github.com/tinylet/tinylet/test/testpod")
	build.Env = append(os.Environ(), env...)
	if out, err := build.CombinedOutput(); err != nil {
		l.Fatalf("build testpod: %v\n%s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		l.Fatal(err)
	}
	l.importImage("testpod", imagetar.Image{
		Name: testpod, GOARCH: l.goarch(), Entrypoint: []string{"/testpod"},
		Files: []imagetar.File{{Name: "testpod", Mode: 0o755, Data: data}},
	})
	l.c.Apply(l.T, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: %s
        imagePullPolicy: Never
        args: [serve, -http=:8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2}
        resources: {requests: {memory: 8Mi}}
`, pods, testpod))
	began := time.Now()
	l.until("ten pods are Ready", func() string {
		var d struct {
			Status struct{ ReadyReplicas int }
		}
		l.c.Get(l.T, &d, "deployment", "web")
		if d.Status.ReadyReplicas != pods {
			return fmt.Sprintf("%d are", d.Status.ReadyReplicas)
		}
		return ""
	})
	l.Logf("ten pods after %.1f s", time.Since(began).Seconds())
	// The group of a pod's sandbox has no limit, as with a kubelet.
	if out := l.sh("cat /sys/fs/cgroup/kubepods/*/pod*/*/memory.swap.max | sort | uniq -c | xargs"); strings.TrimSpace(out) != "10 0 10 max" {
		l.Errorf("memory.swap.max of the containers and sandboxes is %q", out)
	}
	if out := l.c.Must(l.T, "logs", "deployment/web"); !strings.Contains(out, "serves") {
		l.Errorf("kubectl logs: %q", out)
	}
}

// importImage writes an archive into the board's directory of images, which the agent imports
// when it starts.
func (l *lab) importImage(name string, im imagetar.Image) {
	l.Helper()
	var archive bytes.Buffer
	if err := imagetar.Write(&archive, im); err != nil {
		l.Fatal(err)
	}
	script := fmt.Sprintf("cd /var/lib/tinylet/images && cat > .new && mv .new %s.tar && /etc/init.d/S50tinylet restart", name)
	if _, err := l.ssh(l.Context(), &archive, script); err != nil {
		l.Fatal(err)
	}
}

// running returns the number of pods whose container runs, by the board itself.
func (l *lab) running() (int, error) {
	ctx, cancel := l.timeout()
	defer cancel()
	out, err := l.ssh(ctx, nil, "tinylet ps -o json")
	if err != nil {
		return 0, err
	}
	var list struct{ Pods []struct{ Ready, Total int } }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return 0, fmt.Errorf("parse pods: %w", err)
	}
	n := 0
	for _, p := range list.Pods {
		if p.Ready == p.Total {
			n++
		}
	}
	return n, nil
}

// restored waits until the ten pods run again, and returns the board's uptime in seconds. A
// starting board is not asked by SSH, which costs it a second each time: it waits for the
// groups of ten sandboxes and containers itself.
func (l *lab) restored() (uptime string) {
	l.Helper()
	l.up()
	out := l.sh(`i=0; until [ "$(ls -d /sys/fs/cgroup/kubepods/*/pod*/*/ 2> /dev/null | wc -l)" -ge 20 ] || [ $((i += 1)) -gt 400 ]; do sleep 0.5; done; cat /proc/uptime`)
	uptime, _, _ = strings.Cut(out, " ")
	l.until("ten pods run again", func() string {
		n, err := l.running()
		if err != nil || n != pods {
			return fmt.Sprintf("%d do, %v", n, err)
		}
		return ""
	})
	return uptime
}

// powerCuts cuts the power of the board with its pods. Every other cut hits a board that
// boots.
func (l *lab) powerCuts(disk string, cuts int) {
	seed := uint64(board.Number(l.T, "SEED", time.Now().UnixNano()%1_000_000))
	random := rand.New(rand.NewPCG(seed, 0))
	for n := 1; n <= cuts; n++ {
		if n%2 == 0 {
			l.vm.Kill()
			l.power(disk)
		}
		wait := time.Duration(random.Int64N(int64(20 * time.Second)))
		select {
		case <-time.After(wait):
		case <-l.vm.Ended():
			l.Fatalf("the board ended:\n%s", l.vm.ConsoleLog())
		}
		l.vm.Kill()
		l.power(disk)
		l.Logf("cut %d of %d, seed %d, %.1f s after the last step: ten pods run %s s after the start of the kernel; %s", n, cuts, seed, wait.Seconds(), l.restored(), l.problems())
	}
}

// problems returns what the board reports of its setup, and fails if it is anything.
func (l *lab) problems() string {
	l.Helper()
	if out := l.sh("cat /run/tinylet/problems/* 2> /dev/null; true"); out != "" {
		l.Errorf("problems: %s", out)
	}
	return strings.TrimSpace(l.sh("dmesg | grep -E 'EXT4-fs|recover' | grep -v mounted | tail -n 2"))
}

// shutdown powers the board off in an orderly way, which leaves a clean file system.
func (l *lab) shutdown(disk string) {
	if _, err := l.ssh(l.Context(), nil, "poweroff"); err != nil {
		l.Logf("poweroff: %v", err)
	}
	select {
	case <-l.vm.Ended():
	case <-time.After(patience):
		l.Fatal("the board does not power off")
	}
	l.power(disk)
	uptime := l.restored()
	if out := l.sh("dmesg | grep -c 'recovery complete'; true"); strings.TrimSpace(out) != "0" {
		l.Errorf("the journal of the data partition was recovered %s times after a clean shutdown", out)
	}
	l.Logf("after a shutdown: ten pods run %s s after the start of the kernel", uptime)
}
