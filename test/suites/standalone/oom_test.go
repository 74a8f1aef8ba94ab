//go:build board

package standalone

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// TestOutOfMemory has the kernel kill containers of a 256 MB board.
func TestOutOfMemory(t *testing.T) {
	n := boot(t, board.VMOptions{MemoryMB: 256, Files: []board.File{
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(podConfig)},
		{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte("TINYLET_ARGS=\"--config /etc/tinylet/config.yaml\"\n")},
	}})
	for _, c := range []check{
		{"a container over its limit", overItsLimit},
		{"a group of two processes", wholeGroup},
		{"containerd is away", containerdAway},
		{"the system runs out", systemOut},
		{"one process of a container that goes on", oneProcess},
	} {
		if !t.Run(c.name, func(t *testing.T) {
			n := n.with(t)
			c.test(n)
			n.clear()
		}) {
			break
		}
	}
}

// hog is a pod with a container that runs a script under a limit.
func hog(name, limit, script string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n"+
		"  - {name: c, image: %q, command: [sh, -c, %q], resources: {limits: {memory: %s}}}\n", name, board.BusyboxImage, script, limit)
}

// eat takes so much memory at once and touches all of it.
func eat(mib int) string { return fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%dM count=1", mib) }

// endedForMemory waits until a run of the container has ended so.
func (p pod) endedForMemory() {
	p.Helper()
	p.until("an end for memory", func(d *cli.DescriptionDocument) string {
		for i := range d.Object.Status.ContainerStatuses {
			s := &d.Object.Status.ContainerStatuses[i]
			for _, end := range []string{reasonOf(s.State.Terminated), reasonOf(s.LastTerminationState.Terminated)} {
				// A runtime that was away has lost the code: containerd says 255.
				if end == "OOMKilled 137" || end == "OOMKilled 255" {
					return ""
				}
			}
		}
		return fmt.Sprintf("%+v", d.Object.Status.ContainerStatuses)
	})
}

func reasonOf(t *v1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	return fmt.Sprint(t.Reason, " ", t.ExitCode)
}

func overItsLimit(n node) {
	n.put("over.yaml", hog("over", "32Mi", "sleep 2; exec "+eat(64)))
	p := n.pod("over")
	p.endedForMemory()
	p.event("OOMKilled", " reached its memory limit of 32Mi")
	p.until("a restart", func(d *cli.DescriptionDocument) string {
		if d.Object.Status.ContainerStatuses[0].RestartCount > 0 {
			return ""
		}
		return "none"
	})
}

func wholeGroup(n node) {
	n.put("group.yaml", hog("group", "32Mi", "sleep 1000000 & sleep 2; "+eat(64)+"; sleep 1000000"))
	p := n.pod("group")
	p.endedForMemory()
	p.event("OOMKilled", "all processes of container c were killed")
}

// containerdAway has the container end while nobody hears its shim.
func containerdAway(n node) {
	n.put("away.yaml", hog("away", "32Mi", "until [ -e /tmp/now ]; do sleep 1; done; exec "+eat(64)))
	p := n.pod("away")
	p.status("Running")
	n.sh("kill -STOP $(pidof containerd)")
	n.sh("for p in /proc/[0-9]*; do grep -q kubepods $p/cgroup && mkdir -p $p/root/tmp && touch $p/root/tmp/now; done 2> /dev/null; sleep 5")
	n.sh("kill -9 $(pidof containerd); /etc/init.d/S40containerd restart")
	p.endedForMemory()
	p.event("OOMKilled", " reached its memory limit of 32Mi")
}

// systemOut has a process outside of all pods take what there is.
func systemOut(n node) {
	agent := n.status().PID
	// Both keep what they took while nobody reads their pipes: on a busy machine
	// one that ended at once could be gone before the other had taken its own.
	const keep = "dd if=/dev/zero bs=150M count=1 | sleep 10"
	n.sh("(echo 1000 > /proc/self/oom_score_adj; %[1]s & %[1]s & wait) > /dev/null 2>&1; true", keep)
	n.told("SystemOOM")
	if now := n.status().PID; now != agent {
		n.Errorf("the agent was %d and is %d", agent, now)
	}
}

func oneProcess(n node) {
	n.sh("sed -i 's/^maxPods: 110$/maxPods: 110\\nsingleProcessOOMKill: true/' /etc/tinylet/config.yaml; /etc/init.d/S50tinylet restart")
	n.put("one.yaml", hog("one", "32Mi", "sleep 2; "+eat(64)+"; sleep 1000000"))
	p := n.pod("one")
	p.event("OOMKilled", "a process of container c was killed")
	d := p.status("Running")
	if s := d.Object.Status.ContainerStatuses[0]; s.RestartCount != 0 || !strings.HasPrefix(s.ContainerID, "containerd://") {
		p.Errorf("the container did not go on: %+v", s)
	}
}
