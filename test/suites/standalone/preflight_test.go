//go:build board

package standalone

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// TestWithoutMemoryController boots a board as Raspberry Pi OS leaves it.
func TestWithoutMemoryController(t *testing.T) {
	n := boot(t, board.VMOptions{ExtraCmdline: "cgroup_disable=memory", MemoryMB: 256})
	out, err := n.vm.Run(n.ctx, "tinylet", "check")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", out.Stdout)
	if out.Exit != 1 {
		t.Errorf("exit code %d, want 1", out.Exit)
	}
	for _, want := range []string{"the memory controller is missing: cgroup_disable=memory", "-> remove cgroup_disable=memory from the kernel's command line"} {
		if !strings.Contains(string(out.Stdout), want) {
			t.Errorf("the finding does not say %q", want)
		}
	}
}

// TestPowerCut cuts the power of a board with running pods and boots its disk
// again, without a network: everything comes back.
func TestPowerCut(t *testing.T) {
	if arch() != board.ARM64 {
		t.Skip("nothing in it depends on the architecture: the arm64 board runs it")
	}
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := board.NewDisk(t.Context(), prepare(t), disk); err != nil {
		t.Fatal(err)
	}
	n := boot(t, board.VMOptions{Disk: disk, DiskCache: "none"})
	n.put("a.yaml", sleeper("a", 2))
	n.put("once.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: once}, spec: {restartPolicy: Never, containers: [{name: c, image: "localhost/busybox:1", command: ["true"]}]}}`)
	want := statuses(map[string]string{"a": "Running", "once": "Completed"})
	n.eventually(patience, "the pods run", want)
	n.sh("cp /usr/bin/tinylet /usr/bin/.t && mv /usr/bin/.t /usr/bin/tinylet; sync")
	n.put("late.yaml", sleeper("late", 1)) // cut while it starts
	n.sh("sync; sleep 1")
	n.vm.Kill()

	n = bootDisk(t, board.VMOptions{Disk: disk, DiskCache: "none"})
	n.eventually(3*time.Minute, "the pods are back after a power cut", statuses(map[string]string{"a": "Running", "once": "Completed", "late": "Running"}))
	if got := len(n.tasks()); got != 2+3 {
		t.Errorf("%d tasks for two sandboxes and three containers", got)
	}
}
