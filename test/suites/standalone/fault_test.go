//go:build board

package standalone

import (
	"fmt"
	"strings"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// containerdFaults stops, restarts and hangs containerd while pods start.
func containerdFaults(n node) {
	n.put("r0.yaml", sleeper("r0", 1))
	n.eventually(patience, "the first pod runs", statuses(map[string]string{"r0": "Running"}))
	first := n.tasks()
	want := map[string]string{"r0": "Running"}
	for i, fault := range []struct{ name, script string }{
		{"restarted", "/etc/init.d/S40containerd restart"},
		{"killed", "kill -9 $(pidof containerd)"},
		{"hung", "kill -STOP $(pidof containerd); sleep 15; kill -CONT $(pidof containerd)"},
		{"stopped", "/etc/init.d/S40containerd stop; sleep 10; /etc/init.d/S40containerd start"},
	} {
		name := fmt.Sprintf("r%d", i+1)
		n.put(name+".yaml", sleeper(name, 1))
		n.sh("sleep 1; %s", fault.script)
		want[name] = "Running"
		n.eventually(patience, "containerd "+fault.name+" while a pod starts: it runs", statuses(want))
	}
	now := n.tasks()
	for id, pid := range first {
		if now[id] != pid {
			n.Errorf("container %s of the first pod did not survive containerd: %s, now %q", id, pid, now[id])
		}
	}
	if len(now) != 2*len(want) {
		n.Errorf("%d tasks for %d pods", len(now), len(want))
	}
}

// lostContainer has a container that containerd has lost start again.
func lostContainer(n node) {
	lose(n)
	n.told("ContainerLost")
	n.eventually(patience, "the pod runs again", func(pods map[string]cli.PodDocument) string {
		for _, c := range pods["lost"].Containers {
			if c.Name == "c0" && c.Restarts == 0 {
				return "it was not started again"
			}
		}
		return ""
	})
}

// lostOrphan has the pod of such a container end of which nobody knows more than
// the runtime does: its manifest goes while the agent does not run.
func lostOrphan(n node) {
	lose(n)
	n.sh("/etc/init.d/S50tinylet stop; rm %s/lost.yaml; /etc/init.d/S50tinylet start", manifestDir)
	n.eventually(patience, "nothing of the pod is left", func(map[string]cli.PodDocument) string {
		return n.sh("ctr -n k8s.io c ls -q; ls -d /sys/fs/cgroup/kubepods/*/pod* 2> /dev/null; true")
	})
}

// lose has crun take longer to delete a container than containerd waits:
// containerd holds the container for running from then on, though all of it is
// gone.
func lose(n node) {
	n.put("lost.yaml", strings.Replace(sleeper("lost", 2), "1000000", "20", 1))
	n.eventually(patience, "both containers run", statuses(map[string]string{"lost": "Running"}))
	n.slowDelete("")
	n.eventually(patience, "a container is lost: by its status it runs, and it has no process", func(pods map[string]cli.PodDocument) string {
		for _, c := range pods["lost"].Containers {
			if c.Name == "c0" && n.sh("ctr -n k8s.io t ls | grep -c '^%s .*STOPPED'; true", c.ID) == "1" && n.sh("ls -d /run/crun-was-slow 2> /dev/null; true") != "" {
				return ""
			}
		}
		return n.sh("ctr -n k8s.io t ls")
	})
	n.sh("mv /usr/bin/crun.own /usr/bin/crun; rmdir /run/crun-was-slow")
}

// slowDelete has crun take longer to delete the container of that ID, or, with "", the next
// container, than containerd waits.
func (n node) slowDelete(id string) {
	n.Helper()
	n.sh(`mv /usr/bin/crun /usr/bin/crun.own
cat > /usr/bin/crun <<'END'
#!/bin/sh
case " $* " in
*" delete "*%s*)
	if mkdir /run/crun-was-slow 2> /dev/null; then
		/usr/bin/crun.own "$@"
		exec sleep 30
	fi;;
esac
exec /usr/bin/crun.own "$@"
END
chmod 755 /usr/bin/crun`, id)
}

// lostSandbox has containerd lose the process of a sandbox while the pod terminates: the pod
// ends all the same.
func lostSandbox(n node) {
	n.put("lost.yaml", sleeper("lost", 1))
	n.eventually(patience, "the pod runs", statuses(map[string]string{"lost": "Running"}))
	id := n.sh("ctr -n k8s.io c ls -q 'labels.\"io.cri-containerd.kind\"==sandbox'")
	if id == "" || strings.Contains(id, "\n") {
		n.Fatalf("sandboxes: %q", id)
	}
	n.slowDelete(id)
	n.sh("rm %s/lost.yaml", manifestDir)
	n.told("ContainerLost")
	n.eventually(patience, "nothing of the pod is left", func(map[string]cli.PodDocument) string {
		return n.sh("ctr -n k8s.io c ls -q; ls -d /sys/fs/cgroup/kubepods/*/pod* 2> /dev/null; true")
	})
	n.sh("mv /usr/bin/crun.own /usr/bin/crun; rmdir /run/crun-was-slow")
}

// diskFull fills the disk for state, then that for logs, while a pod is to
// start.
func diskFull(n node) {
	full(n, "state", "/var/lib/kubelet/pods", "size=64k")
	full(n, "logs", "/var/log/pods", "nr_inodes=1")
}

// full mounts a full file system over dir.
func full(n node, name, dir, limit string) {
	n.put("ok.yaml", sleeper("ok", 1))
	running := map[string]string{"ok": "Running"}
	n.eventually(patience, "a pod runs", statuses(running))
	before := n.tasks()
	n.sh("mount -t tmpfs -o %[2]s tmpfs %[1]s; head -c 200000 /dev/zero > %[1]s/fill 2> /dev/null; [ \"$(df -P %[1]s | awk 'END { print $1 }')\" = tmpfs ]", dir, limit)
	late := "late-for-" + name
	n.put("late.yaml", strings.Replace(sleeper(late, 1), "  containers:", "  volumes: [{name: v, emptyDir: {}}]\n  containers:", 1))
	n.eventually(patience, "disk full for "+name+": the next pod waits and says why", func(pods map[string]cli.PodDocument) string {
		if pods["ok"].Status != "Running" {
			return "the first pod is " + pods["ok"].Status
		}
		for line := range strings.Lines(n.sh("tinylet events")) {
			if strings.Contains(line, late) && strings.Contains(line, "no space left") {
				return ""
			}
		}
		return "no event tells of the full disk"
	})
	n.sh("umount -l %s", dir) // who tries to start the pod may just have a file open
	n.eventually(patience, "both run once there is space", statuses(map[string]string{"ok": "Running", late: "Running"}))
	now := n.tasks()
	for id, pid := range before {
		if now[id] != pid {
			n.Errorf("the first pod was restarted: %v, now %v", before, now)
		}
	}
	n.clear()
}

// clockJumps sets the board's clock back to 1970 and forth by years.
func clockJumps(n node) {
	n.put("c.yaml", sleeper("c", 1))
	n.put("crash.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: crash}, spec: {containers: [{name: c, image: "localhost/busybox:1", command: [sh, -c, "exit 1"]}]}}`)
	pods := n.eventually(patience, "one pod runs, one crashes", func(pods map[string]cli.PodDocument) string {
		if pods["c"].Status != "Running" || pods["crash"].Restarts < 1 {
			return fmt.Sprintf("%s, %d restarts", pods["c"].Status, pods["crash"].Restarts)
		}
		return ""
	})
	before := n.tasks()
	now := n.now()
	restarts := pods["crash"].Restarts
	for _, when := range []time.Time{time.Unix(60, 0), now.AddDate(9, 0, 0), now} {
		n.sh("date -u -s @%d", when.Unix())
		pods := n.eventually(patience, fmt.Sprintf("the clock jumped to %d: the crash loop goes on", when.UTC().Year()), func(pods map[string]cli.PodDocument) string {
			if pods["crash"].Restarts <= restarts {
				return fmt.Sprintf("still %d restarts", restarts)
			}
			return ""
		})
		restarts = pods["crash"].Restarts
	}
	if restarts > 12 {
		n.Errorf("%d restarts: a clock jump set off a storm", restarts)
	}
	after := n.tasks()
	for id, pid := range before {
		if after[id] != pid {
			n.Errorf("a clock jump restarted a container: %v, now %v", before, after)
		}
	}
	if got := n.sh("wget -q -O - http://127.0.0.1:10248/healthz"); got != "ok" {
		n.Errorf("healthz after the jumps: %q", got)
	}
}

// cannotStart runs pods whose image is not there or whose command is not.
func cannotStart(n node) {
	n.put("absent.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: absent}, spec: {containers: [{name: c, image: "localhost/absent:1"}]}}`)
	n.put("never.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: never}, spec: {containers: [{name: c, image: "localhost/absent:1", imagePullPolicy: Never}]}}`)
	n.put("bad.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: c, image: "localhost/busybox:1", command: [/no/such/program]}]}}`)
	n.put("name.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: name}, spec: {containers: [{name: c, image: "localhost/UPPER:1"}]}}`)
	pods := n.eventually(patience, "each says why it does not run", func(pods map[string]cli.PodDocument) string {
		for name, want := range map[string][]string{
			"absent": {"ErrImagePull", "ImagePullBackOff"}, "never": {"ErrImageNeverPull"},
			"bad": {"CrashLoopBackOff", "StartError", "RunContainerError"}, "name": {"InvalidImageName"},
		} {
			if status := pods[name].Status; !strings.Contains(" "+strings.Join(want, " ")+" ", " "+status+" ") || status == "" {
				return fmt.Sprintf("%s is %q", name, status)
			}
		}
		return ""
	})
	n.Logf("absent %s, never %s, bad %s, name %s", pods["absent"].Status, pods["never"].Status, pods["bad"].Status, pods["name"].Status)
}

// brokenOffStart gives a pod what containerd leaves of a sandbox when the
// caller of CRI goes away between the making of its task and the answer: a
// container, a process and a shim of which CRI knows nothing. The pod ends all
// the same, and takes them along.
func brokenOffStart(n node) {
	n.put("cut.yaml", sleeper("cut", 1))
	uid := n.eventually(patience, "the pod runs", statuses(map[string]string{"cut": "Running"}))["cut"].UID
	n.sh(`ctr -n k8s.io run --detach --runc-binary crun --net-host --cgroup kubepods/besteffort/pod%[1]s/left \
	--label io.cri-containerd.kind=sandbox --label io.kubernetes.pod.uid=%[1]s %[2]s left sleep 1000000`, uid, board.BusyboxImage)
	const shim = `ps | grep -c '[c]ontainerd-shim.* -id left'; true`
	if shims, tasks := n.sh(shim), n.tasks(); shims != "1" || tasks["left"] == "" {
		n.Fatalf("%s shims of what was left, tasks %v", shims, tasks)
	}
	n.clear()
	if shims, tasks := n.sh(shim), n.tasks(); shims != "0" || len(tasks) > 0 {
		n.Errorf("%s shims of what was left, tasks %v", shims, tasks)
	}
	if got := n.sh("ctr -n k8s.io snapshots ls | grep -c '^left '; true"); got != "0" {
		n.Error("the snapshot of what was left stays")
	}
}
