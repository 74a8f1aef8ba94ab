package agent

import (
	"os"
	"strings"
)

// ownCgroup is the agent's own group, wherever its init has put it. It is / in
// the root, and in that of a namespace of cgroups.
func ownCgroup() (path string, ok bool) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	return cgroupOf(string(data))
}

// cgroupOf is the group that a process' file cgroup in /proc tells: that of the
// line 0::/path. Where hierarchies of cgroup v1 are mounted beside, theirs
// come first (cgroups(7)).
func cgroupOf(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, true
		}
	}
	return "", false
}
