//go:build board

package standalone

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// packageSteps are run in this order, on one board.
var packageSteps = []check{
	{"ARMv6 is refused", packageRefused},
	{"install", packageInstalls},
	{"upgrade", func(n node) { packageReplaces(n, "new") }},
	{"downgrade", func(n node) { packageReplaces(n, "old") }},
	{"an upgrade that does not start", func(n node) { packageUndone(n, "exec", "#!/bin/sh\nexit 1\n") }},
	{"an upgrade that hangs", func(n node) { packageUndone(n, "hang", "#!/bin/sh\nexec sleep 100000\n") }},
	{"an upgrade with a read-only /usr", packageReadOnly},
	{"remove", packageRemoved},
	{"install again", packageReturns},
	{"purge with pods", packagePurgedWithPods},
	{"purge", packagePurged},
	{"beside a kubelet", packageBesideKubelet},
	{"another network plugin", packageOtherNetwork},
}

// TestPackage installs, upgrades, downgrades, removes and purges the Debian packages of
// the directories that BOARD_DEBS names, the older version in old and the newer one in new,
// on a Debian board with systemd.
func TestPackage(t *testing.T) {
	dir := os.Getenv("BOARD_DEBS")
	if dir == "" {
		t.Skip("it takes a board of its own: make test-deb runs it, with BOARD_DEBS set")
	}
	image, disk := packageBoard(t)
	n := bootImage(t, image, board.VMOptions{
		MemoryMB: 512, Disk: disk, DiskCache: "none", Files: append(packageFiles(t, dir, "old"), packageFiles(t, dir, "new")...),
	}, systemdLog)
	n.inOrder(packageSteps)
}

// systemdLog prints the agent's log.
const systemdLog = "journalctl -u tinylet -o cat --no-pager -n %d"

// packageBoard makes a Debian board without tinylet, and its disk.
func packageBoard(t *testing.T) (image *board.Image, disk string) {
	t.Helper()
	image, err := board.Prepare(t.Context(), board.Options{Arch: arch(), Systemd: true, Stock: board.StockDebian, Dpkg: true, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	disk = filepath.Join(t.TempDir(), "disk.qcow2")
	if err := board.NewDisk(t.Context(), image, disk); err != nil {
		t.Fatal(err)
	}
	return image, disk
}

// packageFiles puts the package of a version into the board as /root/VERSION.deb.
func packageFiles(t *testing.T, dir, version string) []board.File {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, version, "tinylet_*_"+debian()+".deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages in %s/%s: %v, %v; want one", dir, version, found, err)
	}
	return []board.File{{Path: "/root/" + version + ".deb", Mode: 0o644, Source: found[0]}}
}

// TestRaspberryPiOS installs the package on a board whose firmware disables the memory
// cgroup, as that of a Raspberry Pi does, and does what it then asks for. The firmware is
// simulated: the second boot has the command line that it would pass.
func TestRaspberryPiOS(t *testing.T) {
	dir := os.Getenv("BOARD_DEBS")
	if dir == "" {
		t.Skip("it takes a board of its own: make test-deb runs it, with BOARD_DEBS set")
	}
	const file = "/boot/firmware/cmdline.txt"
	image, disk := packageBoard(t)
	n := bootImage(t, image, board.VMOptions{
		MemoryMB: 512, Disk: disk, DiskCache: "none", ExtraCmdline: "cgroup_disable=memory", Files: packageFiles(t, dir, "new"),
	}, systemdLog)
	n.sh("mkdir -p /boot/firmware && echo 'console=serial0,115200 root=PARTUUID=0-02 rootwait' > %s", file)
	out := n.dpkg("-i /root/new.deb")
	for _, want := range []string{"cannot work yet", "cgroup_disable=memory", "tinylet kernel-args --write", file} {
		if !strings.Contains(out, want) {
			n.Errorf("the installation does not say %q", want)
		}
	}
	n.Log(n.sh("tinylet kernel-args; tinylet kernel-args --write; tinylet kernel-args --write"))
	if got := n.sh("cat %s", file); got != "console=serial0,115200 root=PARTUUID=0-02 rootwait cgroup_enable=memory cgroup_memory=1" {
		n.Errorf("%s has %q", file, got)
	}
	n.sh("sync")
	if err := n.vm.Shutdown(n.ctx); err != nil {
		n.Fatal(err)
	}
	n = bootImage(t, image, board.VMOptions{MemoryMB: 512, Disk: disk, DiskCache: "none"}, systemdLog)
	n.put("one.yaml", sleeper("one", 1))
	n.eventually(patience, "a pod runs after the reboot", isReady("one"))
	n.sh("tinylet check --quiet")
}

// TestPackageWithoutCgroup2 installs the package on a board whose systemd mounts the
// hierarchies of cgroup v1.
func TestPackageWithoutCgroup2(t *testing.T) {
	dir := os.Getenv("BOARD_DEBS")
	if dir == "" {
		t.Skip("it takes a board of its own: make test-deb runs it, with BOARD_DEBS set")
	}
	image, disk := packageBoard(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	vm, err := board.Boot(ctx, image, board.VMOptions{
		MemoryMB: 512, Disk: disk, DiskCache: "none", Files: packageFiles(t, dir, "new"),
		ExtraCmdline: "systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	n := node{T: t, ctx: ctx, vm: vm, log: systemdLog}
	// The boot is not waited for: the board's containerd does not start. The board mounts
	// cgroup v2 over what systemd has mounted.
	n.sh("until ctr version > /dev/null 2>&1 || systemctl is-failed containerd > /dev/null; do sleep 1; done; umount /sys/fs/cgroup")
	n.Log(n.sh("grep cgroup /proc/mounts"))
	out := n.dpkg("-i /root/new.deb")
	for _, want := range []string{"cannot work yet", "cgroup v2", "systemd.unified_cgroup_hierarchy"} {
		if !strings.Contains(out, want) {
			n.Errorf("the installation does not say %q", want)
		}
	}
	if out := n.sh("timeout 60 tinylet --config /etc/tinylet/config.yaml 2>&1 && exit 1; true"); !strings.Contains(out, "`tinylet check` shows the remedy") {
		n.Errorf("the agent does not name the check:\n%s", out)
	}
	n.dpkg("--purge tinylet")
}

// debian is Debian's name of the architecture.
func debian() string {
	if arch() == board.ARMv7 {
		return "armhf"
	}
	return "arm64"
}

// dpkg installs, removes or purges, and returns what that prints.
func (n node) dpkg(args string) string {
	n.Helper()
	out := n.sh("DEBIAN_FRONTEND=noninteractive dpkg --force-confold %s 2>&1", args)
	n.Logf("dpkg %s:\n%s", args, out)
	return out
}

// agentPID is the agent's process as systemd knows it, "0" if there is none.
func (n node) agentPID() string {
	n.Helper()
	return n.sh("systemctl show -p MainPID --value tinylet.service")
}

func packageRefused(n node) {
	const fake = "mkdir -p /run/fake && printf '#!/bin/sh\necho armv6l\n' > /run/fake/uname && chmod +x /run/fake/uname"
	if arch() != board.ARMv7 {
		n.Skip("the package of this architecture does not ask")
	}
	n.sh("%s", strings.ReplaceAll(fake, "%", "%%"))
	out := n.sh("PATH=/run/fake:$PATH dpkg -i /root/old.deb 2>&1 && exit 1; dpkg -s tinylet 2>&1 | grep Status; dpkg --purge tinylet; true")
	if !strings.Contains(out, "ARMv6") || strings.Contains(out, "install ok installed") {
		n.Errorf("on an ARMv6 processor dpkg prints:\n%s", out)
	}
}

func packageInstalls(n node) {
	n.sh("i=0; until ctr version > /dev/null 2>&1 || [ $((i += 1)) -gt 120 ]; do sleep 1; done")
	out := n.dpkg("-i /root/old.deb")
	if strings.Contains(out, "cannot work yet") {
		n.Errorf("the check fails on a Debian board:\n%s", n.sh("tinylet check || true"))
	}
	n.sh("systemctl is-enabled tinylet.service kubelet.service; systemctl is-active tinylet.service")
	if got := n.sh("stat -c %%a /etc/kubernetes/manifests"); got != "700" {
		n.Errorf("the directory of manifests has mode %s", got)
	}
	for _, program := range []string{"tinylet", "kubelet"} {
		if got := n.sh("%s --version", program); !strings.Contains(got, "Kubernetes v1.") {
			n.Errorf("%s --version prints %q", program, got)
		}
	}
	n.put("server.yaml", strings.ReplaceAll(stockPods, "configMap: {name: settings}", "emptyDir: {}"))
	n.eventually(patience, "the server is ready", isReady("server"))
	n.sh("echo '# a comment of the owner' >> /etc/tinylet/config.yaml")
	n.sh("dpkg --verify tinylet | grep -v '^??5?????? c /etc/tinylet/config.yaml$' || true")
}

// packageReplaces installs another version: the agent is another process of another
// version, the containers are the same processes, and the configuration is the owner's.
func packageReplaces(n node, version string) {
	before := n.server()
	tasks, agent := n.tasks(), n.agentPID()
	n.dpkg("-i /root/" + version + ".deb")
	after := n.eventually(patience, "the server is ready after the agent's restart", isReady("server"))["server"]
	if got := n.agentPID(); got == agent || got == "0" {
		n.Errorf("the agent is process %s, before %s", got, agent)
	}
	want := n.sh("dpkg-query -W -f '${Version}' tinylet")
	if got := n.sh("tinylet version -o json"); !strings.Contains(got, strings.ReplaceAll(want, "~", "-")) {
		n.Errorf("version %s of the package has\n%s", want, got)
	}
	n.same(before, after, tasks)
	n.eventually(patience, "the binary is confirmed", func(map[string]cli.PodDocument) string {
		return n.sh("cat /var/lib/tinylet/upgrade/trial 2>/dev/null || true")
	})
	n.sh("grep -q 'a comment of the owner' /etc/tinylet/config.yaml")
}

// packageUndone installs a package whose binary does not work: the former one returns,
// and the containers go on.
func packageUndone(n node, name, program string) {
	before := n.server()
	tasks, was := n.tasks(), n.sh("sha256sum < /usr/bin/tinylet")
	n.sh("systemctl set-property --runtime tinylet.service 2>/dev/null; mkdir -p /run/systemd/system/tinylet.service.d && printf '[Service]\\nTimeoutStartSec=20\\n' > /run/systemd/system/tinylet.service.d/test.conf && systemctl daemon-reload")
	n.sh("rm -rf /root/%[1]s && dpkg-deb -R /root/new.deb /root/%[1]s && printf '%[2]s' > /root/%[1]s/usr/bin/tinylet && dpkg-deb -Znone -b /root/%[1]s /root/%[1]s.deb", name, program)
	n.dpkg("-i /root/" + name + ".deb || true")
	after := n.eventually(patience, "the server is ready with the former binary", func(pods map[string]cli.PodDocument) string {
		if got := n.sh("sha256sum < /usr/bin/tinylet; ls /var/lib/tinylet/upgrade"); got != was+"\nundone" {
			return "the binary and the state of the upgrade are " + got
		}
		return isReady("server")(pods)
	})["server"]
	n.same(before, after, tasks)
	n.Log(n.sh("tinylet status; journalctl -u tinylet -o cat --no-pager -n 40 | grep -v level=INFO"))
	n.dpkg("-i /root/old.deb")
	n.eventually(patience, "the server is ready with the package again", isReady("server"))
	n.sh("rm -rf /root/%s*", name)
}

// server is the pod.
func (n node) server() cli.PodDocument {
	n.Helper()
	pods, err := n.pods()
	if err != nil {
		n.Fatal(err)
	}
	return pods["server"]
}

// same reports a container that did not go on.
func (n node) same(before, after cli.PodDocument, tasks map[string]string) {
	n.Helper()
	if len(before.Containers) == 0 || len(after.Containers) == 0 {
		n.Fatalf("no containers: %+v, then %+v", before, after)
	}
	if b, a := before.Containers[0], after.Containers[0]; b.ID != a.ID || b.Restarts != a.Restarts {
		n.Errorf("the container did not go on: %+v, then %+v", b, a)
	}
	if got := fmt.Sprint(n.tasks()); got != fmt.Sprint(tasks) {
		n.Errorf("processes of containers are %s, before %v", got, tasks)
	}
}

// packageRemoved leaves the pods running, and their data.
func packageRemoved(n node) {
	tasks := n.tasks()
	if out := n.dpkg("--remove tinylet"); !strings.Contains(out, "its pods keep running") {
		n.Error("the removal does not say what becomes of the pods")
	}
	if got := fmt.Sprint(n.tasks()); got != fmt.Sprint(tasks) {
		n.Errorf("processes of containers are %s, before %v", got, tasks)
	}
	n.sh("test ! -e /usr/bin/tinylet && test ! -e /usr/bin/kubelet && test -e /etc/tinylet/config.yaml && ls /var/lib/kubelet/pods/* > /dev/null")
	n.sh("! systemctl is-active tinylet.service")
}

func packageReturns(n node) {
	tasks := n.tasks()
	n.dpkg("-i /root/new.deb")
	n.eventually(patience, "the server is ready after a new installation", isReady("server"))
	if got := fmt.Sprint(n.tasks()); got != fmt.Sprint(tasks) {
		n.Errorf("processes of containers are %s, before %v", got, tasks)
	}
}

// packagePurgedWithPods keeps the data of the pods that run.
func packagePurgedWithPods(n node) {
	if out := n.dpkg("--purge tinylet"); !strings.Contains(out, "pods still run") {
		n.Error("the purge does not say that pods still run")
	}
	n.sh("ls /var/lib/kubelet/pods/* > /dev/null; test ! -e /etc/tinylet")
	n.dpkg("-i /root/new.deb")
	n.put("server.yaml", strings.ReplaceAll(stockPods, "configMap: {name: settings}", "emptyDir: {}"))
	n.eventually(patience, "the server is ready after a new installation", isReady("server"))
}

// packagePurged leaves nothing of tinylet and of its pods, and what is mounted into a
// pod from elsewhere.
func packagePurged(n node) {
	n.clear()
	n.sh("d=/var/lib/kubelet/pods/left/volume-subpaths/v/c/0 && mkdir -p \"$d\" '/srv/a b' && echo kept > '/srv/a b/file' && mount --bind '/srv/a b' $d")
	n.dpkg("--purge tinylet")
	if got := n.sh("cat '/srv/a b/file'; ls -d /etc/tinylet /etc/cni/net.d/10-tinylet.conflist /opt/cni/bin/* /usr/lib/cni/* /var/lib/tinylet /var/lib/kubelet /usr/lib/cni/tinylet-cni /etc/systemd/system/kubelet.service 2>/dev/null; grep -c kubelet /proc/self/mountinfo; true"); got != "kept\n0" {
		n.Errorf("a purge leaves:\n%s", got)
	}
}

// packageReadOnly has a package that cannot be unpacked: nothing changes, and the next
// attempt succeeds.
func packageReadOnly(n node) {
	n.eventually(patience, "the binary is confirmed", confirmed(n))
	before, tasks := n.server(), n.tasks()
	n.sh("mount --bind /usr /usr && mount -o remount,bind,ro /usr")
	out := n.sh("dpkg -i /root/new.deb 2>&1 && exit 1; dpkg -s tinylet | grep -E '^(Status|Version)'; ls /var/lib/tinylet/upgrade /usr/libexec/tinylet/former 2> /dev/null || true")
	n.Log(out)
	if !strings.Contains(out, "/usr/bin is read-only") || !strings.Contains(out, "Status: install ok installed\nVersion: 0.1.0~old") {
		n.Error("the installation does not fail as it should")
	}
	if strings.Contains(out, "former") || strings.HasSuffix(out, "\ntrial") {
		n.Error("a binary is on trial that is not installed")
	}
	n.same(before, n.eventually(patience, "the server is ready", isReady("server"))["server"], tasks)
	n.sh("mount -o remount,bind,rw /usr")
	packageReplaces(n, "new")
	packageReplaces(n, "old")
}

// packageBesideKubelet installs beside a kubelet that is not a package. It is simulated by
// what the agent knows a kubelet by, its socket for device plugins.
func packageBesideKubelet(n node) {
	n.sh("systemd-run --unit=device-plugins --socket-property=ListenStream=/var/lib/kubelet/device-plugins/kubelet.sock sleep 100000")
	if out := n.dpkg("-i /root/new.deb"); !strings.Contains(out, "a kubelet is running on this node") || !strings.Contains(out, "stop the kubelet") {
		n.Error("the installation does not name the kubelet")
	}
	n.put("server.yaml", strings.ReplaceAll(stockPods, "configMap: {name: settings}", "emptyDir: {}"))
	n.sh("i=0; until journalctl -u tinylet | grep -q 'a kubelet listens on' || [ $((i += 1)) -gt 60 ]; do sleep 1; done; journalctl -u tinylet | grep -q 'a kubelet listens on'")
	if got := n.sh("ls /var/lib/kubelet; ctr -n k8s.io c ls -q"); got != "device-plugins" {
		n.Errorf("beside a kubelet the agent has made %s", got)
	}
	n.sh("systemctl stop device-plugins.socket device-plugins.service")
	n.eventually(patience, "the pod runs after the kubelet was stopped", isReady("server"))
	n.clear()
	n.dpkg("--purge tinylet")
}

// otherPlugin is a network plugin that gives each pod an address that nothing has.
const otherPlugin = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"address": "10.99.0.9/24", "interface": 0}]}' ;;
esac
`

// packageOtherNetwork installs on a node that has a network configuration of others.
func packageOtherNetwork(n node) {
	const conflist = "/etc/cni/net.d/05-other.conflist"
	for path, text := range map[string]string{
		"/usr/lib/cni/other": otherPlugin,
		conflist:             `{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "other"}]}`,
	} {
		n.sh("mkdir -p %s", filepath.Dir(path))
		if err := n.vm.Put(n.ctx, path, strings.NewReader(text), 0o755); err != nil {
			n.Fatal(err)
		}
	}
	sum := n.sh("md5sum %s /usr/lib/cni/other", conflist)
	n.dpkg("-i /root/new.deb")
	n.put("one.yaml", sleeper("one", 1))
	n.eventually(patience, "the pod has an address of the other network", func(pods map[string]cli.PodDocument) string {
		if wrong := isReady("one")(pods); wrong != "" {
			return wrong
		}
		if ip := pods["one"].PodIP; ip != "10.99.0.9" {
			return "its address is " + ip
		}
		return ""
	})
	if got := n.sh("ls /etc/cni/net.d; ip link show tinylet0 2> /dev/null | head -n 1; nft list tables 2> /dev/null | grep tinylet; true"); got != filepath.Base(conflist) {
		n.Errorf("beside another network the agent has made %q", got)
	}
	n.clear()
	n.dpkg("--purge tinylet")
	if got := n.sh("md5sum %s /usr/lib/cni/other", conflist); got != sum {
		n.Errorf("the other network's files are\n%s\nand were\n%s", got, sum)
	}
}
