//go:build board

package standalone

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// cpuConfig has CPU 1 of two given to whom asks for it.
var cpuConfig = strings.Replace(podConfig, "maxPods: 110\n", "maxPods: 110\ncpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n", 1)

const cpuState = "/var/lib/kubelet/tinylet/cpus.json"

// TestCPUs gives one of a board's two CPUs to one container.
func TestCPUs(t *testing.T) {
	n := boot(t, board.VMOptions{CPUs: 2, Files: []board.File{
		{Path: "/etc/tinylet/config.yaml", Mode: 0o644, Data: []byte(cpuConfig)},
		{Path: "/etc/default/tinylet", Mode: 0o644, Data: []byte("TINYLET_ARGS=\"--config /etc/tinylet/config.yaml\"\n")},
	}})
	n.put("shared.yaml", sleeper("shared", 1))
	// One with a memory limit, which not every OCI runtime can update on every
	// kernel.
	n.put("limited.yaml", withResources("limited", "limits: {memory: 32Mi}"))
	all := map[string]string{"shared": "Running", "limited": "Running"}
	n.eventually(patience, "two pods share the CPUs", statuses(all))
	n.onCPUs(map[string]string{"shared": "0-1", "limited": "0-1"})

	n.put("alone.yaml", withResources("alone", "limits: {cpu: 1, memory: 32Mi}"))
	all["alone"] = "Running"
	n.eventually(patience, "a third one runs", statuses(all))
	apart := map[string]string{"shared": "0", "limited": "0", "alone": "1"}
	n.onCPUs(apart)
	if quota := n.sh("cat %s/cpu.max", n.groupOf("alone")); quota != "max 100000" {
		n.Errorf("the container that is alone has the quota %s", quota)
	}
	before := n.settledTasks()
	for _, step := range []struct{ name, script string }{
		{"killed", "kill -9 $(pidof tinylet); /etc/init.d/S50tinylet restart"},
		{"restarted with a torn file", "/etc/init.d/S50tinylet stop; truncate -s 30 " + cpuState + "; /etc/init.d/S50tinylet start"},
		{"restarted without its file", "/etc/init.d/S50tinylet stop; rm " + cpuState + "; /etc/init.d/S50tinylet start"},
	} {
		n.sh("%s", step.script)
		n.eventually(patience, "the agent was "+step.name, statuses(all))
		n.onCPUs(apart)
		if state := n.sh("cat %s; true", cpuState); !strings.Contains(state, `"1"`) {
			n.Errorf("the agent was %s: its state is %s", step.name, state)
		}
	}
	if now := n.settledTasks(); fmt.Sprint(now) != fmt.Sprint(before) {
		n.Errorf("the containers were %v and are %v", before, now)
	}

	n.sh("rm %s/alone.yaml", manifestDir)
	n.onCPUs(map[string]string{"shared": "0-1", "limited": "0-1"})
	n.clear()
}

// withResources is a pod with a container that sleeps.
func withResources(name, resources string) string {
	return strings.Replace(sleeper(name, 1), "[sleep, \"1000000\"]}", "[sleep, \"1000000\"], resources: {"+resources+"}}", 1)
}

// groupOf is the cgroup of a pod's container.
func (n node) groupOf(pod string) string {
	n.Helper()
	pods, err := n.pods()
	if err != nil {
		n.Fatal(err)
	}
	for _, c := range pods[pod].Containers {
		// What else ends meanwhile takes its groups from under find.
		return n.sh("find /sys/fs/cgroup -type d -name %s 2> /dev/null; true", c.ID)
	}
	return "/none"
}

// onCPUs waits until the containers of pods are on CPUs.
func (n node) onCPUs(want map[string]string) {
	n.Helper()
	for start := time.Now(); ; n.breathe(start) {
		wrong := ""
		for pod, cpus := range want {
			if got := n.sh("cat %s/cpuset.cpus; true", n.groupOf(pod)); got != cpus {
				wrong += fmt.Sprintf("%s is on %q and not on %s; ", pod, got, cpus)
			}
		}
		if wrong == "" {
			return
		}
		if time.Since(start) > patience {
			n.Fatalf("%s\n%s", wrong, n.evidence())
		}
	}
}
