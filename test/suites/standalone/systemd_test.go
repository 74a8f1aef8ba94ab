//go:build board

package standalone

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/resource/selfprotect"
	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// TestSystemd runs pods on a board whose process 1 is systemd, which makes
// their groups. The agent's configuration says otherwise: the runtime's word
// counts.
func TestSystemd(t *testing.T) {
	if os.Getenv("BOARD_SYSTEMD") == "" {
		t.Skip("a board of its own takes long: make test-systemd runs it, with BOARD_SYSTEMD set")
	}
	image := prepareWith(t, true)
	n := bootImage(t, image, withAgent(t, board.VMOptions{Files: []board.File{
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(strings.Replace(podConfig, "maxPods: 110", "maxPods: 110\npodPidsLimit: 200", 1))},
	}}), "journalctl -u tinylet -o cat --no-pager -n %d")
	for _, c := range []check{
		{"slices have their values", sliceValues},
		{"agent and runtime stay in their units", ownUnits},
		{"daemon-reload and restarts change nothing", reloads},
		{"a removed pod leaves no slice", slicesGone},
		{"an agent that is stuck is restarted", stuckAgent},
		{"a container over its limit", func(n node) { overItsLimit(n); n.clear(); n.noSlices() }},
		{"agent killed while pods start", killedWhileStarting},
		{"the bus is away", busAway},
		{"the bus does not answer", busHangs},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			n := n.with(t)
			c.test(n)
		}) {
			t.Logf("systemd:\n%s", n.with(t).sh("systemctl --failed --no-pager; systemctl list-jobs --no-pager; journalctl -p warning -b --no-pager -n 60"))
			break
		}
	}
}

// sized is a sleeper with resources.
func sized(name, resources string) string {
	return strings.Replace(sleeper(name, 1), ", command:", ", resources: "+resources+", command:", 1)
}

// ofEachClass are a pod of each class, and the state in which they are wanted.
var ofEachClass = map[string]string{"safe": "Running", "grows": "Running", "hog": "Running"}

func sliceValues(n node) {
	n.put("safe.yaml", sized("safe", "{requests: {cpu: 1, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}}"))
	n.put("grows.yaml", sized("grows", "{requests: {cpu: 250m, memory: 8Mi}, limits: {cpu: 333m}}"))
	n.put("hog.yaml", sized("hog", "{}"))
	pods := n.eventually(patience, "three pods run", statuses(ofEachClass))
	if got := n.sh("tinylet check"); !strings.Contains(got, "cgroup driver is systemd") {
		n.Errorf("check says nothing of the cgroup driver:\n%s", got)
	}
	total := n.sh("awk '/^MemTotal/ { printf \"%%d\", $2 * 1024 }' /proc/meminfo")
	pod := func(class, name string) string {
		prefix := "kubepods" + class + "-pod"
		if class == "" {
			return "kubepods.slice/" + prefix + pods[name].UID + ".slice"
		}
		return "kubepods.slice/kubepods" + class + ".slice/" + prefix + pods[name].UID + ".slice"
	}
	const mib = 1 << 20
	want := map[string]map[string]string{
		"kubepods.slice": {
			"cpu.weight": "79", "cpu.max": "max 100000", "memory.min": fmt.Sprint(24 * mib), "memory.low": "0", "memory.max": total,
		},
		"kubepods.slice/kubepods-burstable.slice": {
			"cpu.weight": "10", "memory.min": "0", "memory.low": fmt.Sprint(8 * mib), "memory.max": "max", "pids.max": "max",
		},
		"kubepods.slice/kubepods-besteffort.slice": {
			"cpu.weight": "1", "memory.min": "0", "memory.low": "0", "memory.max": "max", "pids.max": "max",
		},
		pod("", "safe"): {
			"cpu.weight": "39", "cpu.max": "100000 100000", "memory.min": fmt.Sprint(16 * mib), "memory.low": "0",
			"memory.high": "max", "memory.max": fmt.Sprint(16 * mib), "pids.max": "200",
		},
		// Systemd keeps whole percents of a CPU.
		pod("-burstable", "grows"): {
			"cpu.weight": "10", "cpu.max": "34000 100000", "memory.min": "0", "memory.low": fmt.Sprint(8 * mib),
			"memory.high": "max", "memory.max": "max", "pids.max": "200",
		},
		pod("-besteffort", "hog"): {
			"cpu.weight": "1", "cpu.max": "max 100000", "memory.min": "0", "memory.low": "0",
			"memory.high": "max", "memory.max": "max", "pids.max": "200",
		},
	}
	has := n.slices()
	for path, files := range want {
		for file, value := range files {
			if has[path][file] != value {
				n.Errorf("%s/%s is %q, want %q", path, file, has[path][file], value)
			}
		}
	}
	n.systemdAgrees(has)
	// A container that may use more than it asks for is held back in between.
	for name, path := range map[string]string{"safe": pod("", "safe"), "grows": pod("-burstable", "grows"), "hog": pod("-besteffort", "hog")} {
		bounded, containers := false, 0
		for group, files := range has {
			if strings.HasPrefix(group, path+"/") {
				containers++
				bounded = bounded || files["memory.high"] != "max"
			}
		}
		if containers < 2 || bounded != (name == "grows") {
			n.Errorf("%s: %d groups of containers, memory.high set: %v", name, containers, bounded)
		}
	}
	n.Log("\n" + n.sh("tinylet ps; systemd-cgls --no-pager /kubepods.slice"))
}

// slices are the files of all groups of pods, by the group's path.
func (n node) slices() map[string]map[string]string {
	n.Helper()
	out := map[string]map[string]string{}
	for line := range strings.Lines(n.sh(`cd /sys/fs/cgroup && find kubepods.slice \( -name cpu.weight -o -name cpu.max -o -name 'memory.m??' \
-o -name memory.low -o -name memory.high -o -name pids.max -o -name cgroup.subtree_control \) -exec grep -H . {} +`)) {
		file, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		i := strings.LastIndexByte(file, '/')
		if i < 0 {
			continue
		}
		if out[file[:i]] == nil {
			out[file[:i]] = map[string]string{}
		}
		out[file[:i]][file[i+1:]] = value
	}
	return out
}

// systemdAgrees says whether systemd has for the slices what the files say: it
// writes its own again whenever it likes.
func (n node) systemdAgrees(has map[string]map[string]string) {
	n.Helper()
	for path, files := range has {
		if !strings.HasSuffix(path, ".slice") {
			continue
		}
		unit := path[strings.LastIndexByte(path, '/')+1:]
		got := n.sh("systemctl show -p CPUWeight -p CPUQuotaPerSecUSec -p MemoryMin -p MemoryLow -p MemoryMax -p TasksMax -p ControlGroup '%s' | sort", unit)
		quota, number := "infinity", strings.NewReplacer("max", "infinity")
		if q, _, _ := strings.Cut(files["cpu.max"], " "); q != "max" {
			quota = map[string]string{"100000": "1s", "34000": "340ms"}[q]
		}
		want := fmt.Sprintf("CPUQuotaPerSecUSec=%s\nCPUWeight=%s\nControlGroup=/%s\nMemoryLow=%s\nMemoryMax=%s\nMemoryMin=%s\nTasksMax=%s",
			quota, files["cpu.weight"], path, files["memory.low"], number.Replace(files["memory.max"]), files["memory.min"], number.Replace(files["pids.max"]))
		if got != want {
			n.Errorf("systemd has of %s\n%s\nand the kernel\n%s", unit, got, want)
		}
	}
}

// ownUnits says whether agent and runtime are where systemd has put them, spared
// by the kernel, and with as much protected memory as in a group of their own:
// processes of a unit are systemd's to move.
func ownUnits(n node) {
	for _, name := range []string{"tinylet", "containerd"} {
		if got := n.sh("p=$(pidof %s) && echo $(cat /proc/$p/cgroup /proc/$p/oom_score_adj)", name); got != "0::/system.slice/"+name+".service -999" {
			n.Errorf("%s: %q", name, got)
		}
	}
	total, err := strconv.ParseUint(n.sh("awk '/^MemTotal/ { printf \"%%d\", $2 * 1024 }' /proc/meminfo"), 10, 64)
	if err != nil {
		n.Fatal(err)
	}
	agent, runtime := selfprotect.SplitProtectedMemory(total)
	for unit, least := range map[string]uint64{
		"system.slice": selfprotect.ProtectedMemory(total), "system.slice/tinylet.service": agent, "system.slice/containerd.service": runtime,
	} {
		wanted := fmt.Sprint(least &^ 4095) // the board's pages
		n.eventually(patience, "the memory of "+unit+" is protected", func(map[string]cli.PodDocument) string {
			if got := n.sh("cat /sys/fs/cgroup/%s/memory.min", unit); got != wanted {
				return fmt.Sprintf("%s of %s", got, wanted)
			}
			return ""
		})
	}
	if got := n.sh("ls -d /sys/fs/cgroup/tinylet 2>/dev/null; systemctl is-active tinylet containerd | sort -u"); got != "active" {
		n.Errorf("a group beside systemd's, or a unit that does not run: %q", got)
	}
}

func reloads(n node) {
	has, tasks := n.slices(), n.tasks()
	for _, command := range []string{"systemctl daemon-reload", "systemctl restart tinylet", "systemctl daemon-reexec", "systemctl restart containerd"} {
		start := time.Now()
		n.sh("%s", command)
		if err := n.vm.WaitContainerd(n.ctx); err != nil {
			n.Fatal(err)
		}
		n.eventually(patience, "the pods after "+command, statuses(ofEachClass))
		n.Logf("%s: %.1f s", command, time.Since(start).Seconds())
		if d := cmp.Diff(has, n.slices()); d != "" {
			n.Errorf("%s has changed groups:\n%s", command, d)
		}
	}
	if now := n.tasks(); !maps.Equal(now, tasks) {
		n.Errorf("what runs has changed: %v, now %v", tasks, now)
	}
	ownUnits(n)
}

func slicesGone(n node) {
	n.sh("rm %s/grows.yaml", manifestDir)
	n.sh("for i in $(seq 1 60); do [ \"$(cat /sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/memory.low)\" = 0 ] && break; sleep 1; done")
	has := n.slices()
	if low, least := has["kubepods.slice/kubepods-burstable.slice"]["memory.low"], has["kubepods.slice"]["memory.min"]; low != "0" || least != fmt.Sprint(16<<20) {
		n.Errorf("with the Burstable pod gone, memory.low is %s and memory.min %s", low, least)
	}
	n.systemdAgrees(has)
	n.clear()
	n.noSlices()
}

// noSlices fails for slices and scopes of pods that are gone, in systemd, in
// the kernel, and on systemd's disk. It gives systemd a minute to forget them.
func (n node) noSlices() {
	n.Helper()
	const script = `systemctl list-units --all --plain --no-legend --no-pager 'kubepods*-pod*' 'cri-containerd-*' 'libpod*'
find /sys/fs/cgroup/kubepods.slice -mindepth 1 -type d \( -name '*-pod*' -o -name '*.scope' \)
ls /run/systemd/transient | grep -e -pod -e cri-containerd
systemctl list-units --failed --plain --no-legend --no-pager`
	left := ""
	for range 30 {
		if left = n.sh("%s; true", script); left == "" {
			return
		}
		n.sh("sleep 2")
	}
	n.Errorf("removed pods left behind:\n%s", left)
}

// killedWhileStarting kills the agent ever later in a pod's start; systemd
// starts it again.
func killedWhileStarting(n node) {
	want := map[string]string{}
	for i, life := range []float64{0.3, 1, 2.5, 5, 9} {
		name := fmt.Sprintf("k%d", i)
		if i%2 == 0 {
			n.put(name+".yaml", sleeper(name, 1))
			want[name] = "Running"
		}
		n.sh("sleep %.1f; systemctl kill -s KILL --kill-whom=main tinylet; sleep 2", life)
	}
	pods := n.eventually(patience, "all run after the kills", statuses(want))
	if got := n.tasks(); len(got) != 2*len(want) {
		n.Errorf("%d tasks for %d pods: %v", len(got), len(want), got)
	}
	has := n.slices()
	for name, p := range pods {
		if files := has["kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"+p.UID+".slice"]; files["cpu.weight"] != "1" || files["pids.max"] != "200" {
			n.Errorf("the slice of %s: %v", name, files)
		}
	}
	n.systemdAgrees(has)
	n.clear()
	n.noSlices()
}

// stuckAgent stops the agent's process, which systemd's watchdog finds. The unit
// has a shorter WatchdogSec than usual. No container is restarted.
func stuckAgent(n node) {
	n.sh("mkdir -p /run/systemd/system/tinylet.service.d && printf '[Service]\\nWatchdogSec=20\\n' > /run/systemd/system/tinylet.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart tinylet")
	defer n.sh("rm -r /run/systemd/system/tinylet.service.d && systemctl daemon-reload && systemctl restart tinylet")
	n.put("stays.yaml", sleeper("stays", 1))
	before, tasks := n.eventually(patience, "a pod runs", statuses(map[string]string{"stays": "Running"})), n.tasks()
	n.sh("for i in $(seq 1 60); do systemctl show -P StatusText tinylet | grep -qx 'Pods: 1 running' && break; sleep 1; done")
	for property, want := range map[string]string{"Type": "notify", "NotifyAccess": "main", "StatusText": "Pods: 1 running", "WatchdogUSec": "20s"} {
		if got := n.sh("systemctl show -P %s tinylet", property); got != want {
			n.Errorf("systemd has %s=%q, want %q", property, got, want)
		}
	}
	pid := n.sh("systemctl show -P MainPID tinylet")
	n.sh("sleep 45; [ $(systemctl show -P MainPID tinylet) = %s ]", pid) // it is healthy for more than two of its times

	n.sh("kill -STOP %s", pid)
	start := time.Now()
	n.sh("for i in $(seq 1 120); do [ $(systemctl show -P MainPID tinylet) != %s ] && systemctl is-active -q tinylet && exit; sleep 1; done; exit 1", pid)
	n.Logf("restarted %.1f s after it was stopped", time.Since(start).Seconds())
	if got := n.sh("journalctl -u tinylet -o cat --no-pager -n 5000 | grep -c 'Watchdog timeout'"); got == "0" {
		n.Error("systemd's journal tells of no watchdog")
	}
	after := n.eventually(patience, "the agent knows its pod again", statuses(map[string]string{"stays": "Running"}))
	if was, is := before["stays"].Containers[0].ID, after["stays"].Containers[0].ID; was != is || !maps.Equal(n.tasks(), tasks) {
		n.Errorf("the pod was restarted: %s, now %s; tasks %v, now %v", was, is, tasks, n.tasks())
	}
	n.clear()
}

// busAway takes the bus away, over which the runtime asks systemd: what runs
// goes on, what cannot start says why, and starts later.
func busAway(n node) {
	n.put("stays.yaml", sleeper("stays", 1))
	n.put("goes.yaml", sleeper("goes", 1))
	before := n.eventually(patience, "two pods run", statuses(map[string]string{"stays": "Running", "goes": "Running"}))
	n.sh("systemctl stop dbus.socket dbus.service")
	n.put("late.yaml", sleeper("late", 1))
	n.pod("late").event("FailedCreatePodSandBox", "sd-bus")
	if got := n.sh("tinylet check; true"); !strings.Contains(got, "make sure that dbus.socket and dbus.service run") {
		n.Errorf("check says nothing of the bus:\n%s", got)
	}
	n.sh("rm %s/goes.yaml; systemctl restart tinylet; sleep 5", manifestDir)
	n.sh("systemctl start dbus.socket dbus.service")
	after := n.eventually(patience, "the bus is back", statuses(map[string]string{"stays": "Running", "late": "Running"}))
	if was, is := before["stays"].Containers[0].ID, after["stays"].Containers[0].ID; was != is {
		n.Errorf("the pod that runs was restarted: %s, now %s", was, is)
	}
	n.clear()
	n.noSlices()
}

// busHangs has the bus answer nothing for a while. The agent asks systemd past
// the bus, the runtime gives up after some two minutes; the agent goes on, starts
// anew, and says what it waits for.
func busHangs(n node) {
	n.put("stays.yaml", sleeper("stays", 1))
	before := n.eventually(patience, "a pod runs", statuses(map[string]string{"stays": "Running"}))
	n.sh("kill -STOP $(pidof dbus-daemon)")
	n.put("late.yaml", sleeper("late", 1))
	n.pod("late").event("FailedCreatePodSandBox", "sd-bus")
	if got := n.sh("tinylet check; true"); !strings.Contains(got, "make sure that dbus.socket and dbus.service run") {
		n.Errorf("check says nothing of the bus:\n%s", got)
	}
	n.sh("systemctl restart tinylet; sleep 10; tinylet ps | grep stays-board")
	n.sh("kill -CONT $(pidof dbus-daemon)")
	after := n.eventually(patience, "the bus answers", statuses(map[string]string{"stays": "Running", "late": "Running"}))
	if was, is := before["stays"].Containers[0].ID, after["stays"].Containers[0].ID; was != is {
		n.Errorf("the pod that runs was restarted: %s, now %s", was, is)
	}
	n.clear()
	n.noSlices()
}
