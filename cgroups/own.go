package cgroups

import (
	"os"
	"strings"
)

// Own returns the cgroup of this process, such as /system.slice/x.service. It is /
// in the root cgroup and in the root of a cgroup namespace.
func Own() (path string, ok bool) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	return ParseOwn(string(data))
}

// ParseOwn returns the cgroup v2 path of /proc/PID/cgroup, which is in the line
// 0::/path. Lines of mounted cgroup v1 hierarchies come before it (cgroups(7)).
func ParseOwn(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, true
		}
	}
	return "", false
}
