//go:build board

package standalone

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// TestPressure runs a board alone of 256 MB out of memory, EVICTION_ROUNDS
// times, or 3. All of its pods are static, so that none is evicted for it: the
// kernel ends those that take more than they asked for, and never the pod that
// has what it asked for, the agent or containerd. What evictions do is tested on
// a node of a cluster (test/suites/cluster).
func TestPressure(t *testing.T) {
	if arch() != board.ARM64 {
		t.Skip("nothing in it depends on the architecture: the arm64 board runs it")
	}
	rounds := int(board.Number(t, "EVICTION_ROUNDS", 3))
	n := boot(t, board.VMOptions{MemoryMB: 256, Files: []board.File{
		{Path: imagesDir + "/program.tar", Mode: 0o644, Data: programArchive(t)},
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(strings.Replace(podConfig, "maxPods: 110", "maxPods: 110\nevictionPressureTransitionPeriod: 5s", 1))},
	}})
	n.Log(n.sh("tinylet check | grep eviction; free"))
	n.put("kept.yaml", manifest(takesMemory("kept", 40, "resources: {requests: {cpu: 50m, memory: 60Mi}, limits: {cpu: 50m, memory: 60Mi}}")))
	kept := n.pod("kept")
	kept.status("Running")
	kept.until("it has its working set", func(d *cli.DescriptionDocument) string {
		if d.MemoryBytes < 40<<20 {
			return fmt.Sprint(d.MemoryBytes)
		}
		return ""
	})
	before, programs := n.tasks(), n.programs()
	for round := range rounds {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) { n.with(t).runOut(round) })
		now := n.tasks()
		for id, pid := range before {
			if now[id] != pid {
				t.Fatalf("round %d: container %s was %s and is %q", round, id, pid, now[id])
			}
		}
		if now := n.programs(); now != programs {
			t.Fatalf("round %d: agent and containerd were %s and are %s", round, programs, now)
		}
	}
}

// takesMemory is a pod that takes so many MiB, and holds them.
func takesMemory(name string, mib int, resources string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
  - name: c
    image: program
    command: [/program, alloc, -step, 50ms, "%d"]
    %s
`, name, mib, resources)
}

// programs are the processes that nothing may end.
func (n node) programs() string {
	n.Helper()
	return "tinylet " + n.sh("pidof tinylet") + ", containerd " + n.sh("pidof containerd")
}

// runOut has two pods take all memory until the kernel has ended both.
func (n node) runOut(round int) {
	hog, leaker := fmt.Sprintf("hog%d", round), fmt.Sprintf("leaker%d", round)
	n.put(hog+".yaml", manifest(takesMemory(hog, 400, "")))
	n.put(leaker+".yaml", manifest(takesMemory(leaker, 400, "resources: {requests: {cpu: 10m, memory: 16Mi}}")))
	short := false
	for _, name := range []string{hog, leaker} {
		p := n.pod(name)
		p.until("the kernel has ended it", func(d *cli.DescriptionDocument) string {
			short = short || strings.Contains(n.sh("tinylet status"), "MemoryPressure True")
			if d.Phase != "Failed" {
				return d.Status
			}
			if d.Status != "OOMKilled" {
				n.Errorf("%s failed as %s: %s", name, d.Status, d.Object.Status.Message)
			}
			return ""
		})
		p.remove()
	}
	if !short {
		n.Log("tinylet status never showed MemoryPressure: the kernel was faster than the looks of this test")
	}
	if events := n.sh("tinylet events"); strings.Contains(events, "Evicted") {
		n.Errorf("a static pod was evicted:\n%s", events)
	}
	for _, name := range []string{hog, leaker} {
		n.pod(name).gone()
	}
}
