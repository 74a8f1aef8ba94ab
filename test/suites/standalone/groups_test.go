//go:build board

package standalone

import (
	"fmt"
	"strconv"
	"strings"
)

// asker is a pod of one container that sleeps, with requests and limits of
// memory.
func asker(name, request, limit string) string {
	resources := "{}"
	switch {
	case request != "" && limit != "":
		resources = fmt.Sprintf("{requests: {cpu: 20m, memory: %s}, limits: {cpu: 20m, memory: %s}}", request, limit)
	case request != "":
		resources = fmt.Sprintf("{requests: {cpu: 20m, memory: %s}}", request)
	}
	return strings.Replace(sleeper(name, 1), ", command:", ", resources: "+resources+", command:", 1)
}

// memoryGroups reads the groups of pods of each class, and of agent and
// runtime, which have to be protected from them, also after a restart.
func memoryGroups(n node) {
	n.put("safe.yaml", asker("safe", "16Mi", "16Mi"))
	n.put("grows.yaml", asker("grows", "8Mi", ""))
	n.put("hog.yaml", asker("hog", "", ""))
	pods := n.eventually(patience, "three pods run", statuses(map[string]string{"safe": "Running", "grows": "Running", "hog": "Running"}))
	uid := func(name string) string { return "pod" + pods[name].UID }
	total, err := strconv.ParseInt(n.sh("awk '/^MemTotal/ { printf \"%%d\", $2 * 1024 }' /proc/meminfo"), 10, 64)
	if err != nil {
		n.Fatal(err)
	}
	page, err := strconv.ParseInt(n.sh("getconf PAGESIZE 2>/dev/null || echo 4096"), 10, 64)
	if err != nil {
		n.Fatal(err)
	}
	values := map[string]string{
		"kubepods/memory.min":                                     fmt.Sprint(24 << 20),
		"kubepods/memory.max":                                     fmt.Sprint(total),
		"kubepods/burstable/memory.low":                           fmt.Sprint(8 << 20),
		"kubepods/besteffort/memory.low":                          "0",
		"kubepods/" + uid("safe") + "/memory.min":                 fmt.Sprint(16 << 20),
		"kubepods/" + uid("safe") + "/memory.max":                 fmt.Sprint(16 << 20),
		"kubepods/burstable/" + uid("grows") + "/memory.low":      fmt.Sprint(8 << 20),
		"kubepods/burstable/" + uid("grows") + "/memory.max":      "max",
		"kubepods/besteffort/" + uid("hog") + "/memory.low":       "0",
		"kubepods/besteffort/" + uid("hog") + "/memory.max":       "max",
		"tinylet/memory.min":                                      fmt.Sprint(min(total/4, 96<<20) / page * page),
		"kubepods/burstable/" + uid("grows") + "/hugetlb.2MB.max": "0",
	}
	// The agent locks what an eviction uses of its program, once there is a pod
	// that can be evicted. Static pods cannot.
	if locked := n.sh("awk '/^VmLck/ { print $2 }' /proc/%d/status", n.status().PID); locked != "0" {
		n.Errorf("%s kB of the agent's program are locked for an eviction of pods that cannot be evicted", locked)
	}
	for file, want := range values {
		if got := n.sh("cat /sys/fs/cgroup/%s 2>/dev/null || echo none", file); got != want && (got != "none" || !strings.Contains(file, "hugetlb")) {
			n.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	// A container that may use more than it asks for is held back in between.
	for _, name := range []string{"safe", "grows", "hog"} {
		high := n.sh("cat $(find /sys/fs/cgroup/kubepods -path '*%s/*' -name memory.high) | sort -u | tr '\\n' ' '", uid(name))
		if bounded := strings.Trim(high, "max ") != ""; bounded != (name == "grows") {
			n.Errorf("memory.high of %s: %q", name, high)
		}
	}

	n.protected("at first")
	n.sh("/etc/init.d/S40containerd restart")
	n.sh("for i in $(seq 1 60); do [ \"$(cat /proc/$(pidof containerd)/cgroup)\" = 0::/tinylet ] && break; sleep 1; done")
	n.protected("after a restart of the runtime")
	n.sh("/etc/init.d/S50tinylet restart")
	n.eventually(patience, "the agent is back", statuses(map[string]string{"safe": "Running", "grows": "Running", "hog": "Running"}))
	n.protected("after a restart of the agent")

	n.sh("rm %s/grows.yaml", manifestDir)
	n.sh("for i in $(seq 1 60); do [ \"$(cat /sys/fs/cgroup/kubepods/burstable/memory.low)\" = 0 ] && break; sleep 1; done")
	if got := n.sh("cat /sys/fs/cgroup/kubepods/burstable/memory.low /sys/fs/cgroup/kubepods/memory.min | tr '\\n' ' '"); got != fmt.Sprint("0 ", 16<<20) {
		n.Errorf("with the Burstable pod gone, %q is protected", got)
	}
}

// protected says whether agent and runtime are in their group, and spared by
// the kernel.
func (n node) protected(when string) {
	n.Helper()
	for _, name := range []string{"tinylet", "containerd"} {
		got := n.sh("for p in $(pidof %s); do echo $(cat /proc/$p/cgroup /proc/$p/oom_score_adj); done", name)
		for line := range strings.Lines(got) {
			if strings.TrimSpace(line) != "0::/tinylet -999" {
				n.Errorf("%s, %s: %q", when, name, line)
			}
		}
	}
}
