package oom

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/cgroups"
)

// system compares the kills that no pod has with those before. It needs the
// lock.
func (w *Watcher) system(node *criconfig.Node, outside uint64, told []string) {
	if outside <= w.outside {
		return
	}
	w.outside = outside
	others := w.otherLimits(node)
	limited := rose(w.others, others)
	w.others = others
	if !limited && len(told) == 0 {
		w.systemOOM(nil)
	}
}

// limitOf is how often a group ran into its limit. One that is made anew, as
// for a service that is started again, has another number and counts from 0.
type limitOf struct{ group, oom uint64 }

// rose says whether any of the groups ran into its limit since.
func rose(before, now map[string]limitOf) bool {
	for name, n := range now {
		was := before[name]
		if was.group != n.group {
			was.oom = 0
		}
		if n.oom > was.oom {
			return true
		}
	}
	return false
}

// otherLimits are those of the groups at the top beside the pods', by name.
// What runs in the root itself has none.
func (w *Watcher) otherLimits(node *criconfig.Node) map[string]limitOf {
	mine, _, _ := strings.Cut(strings.TrimLeft(kubepods(node), "/"), "/")
	names, err := w.cfg.Tree.List("/")
	if err != nil {
		return nil
	}
	limits := make(map[string]limitOf)
	for _, name := range names {
		if name == mine {
			continue
		}
		id, err := w.cfg.Tree.ID(name)
		if err != nil {
			continue
		}
		if c, err := w.read("/" + name); err == nil {
			limits[name] = limitOf{id, c.oom}
		}
	}
	return limits
}

// kernelKills is how many processes the kernel has killed for memory since it
// was booted, of the system's and of groups' (OOM_KILL in mm/oom_kill.c); ok is
// false for one older than Linux 4.13. In a container with a namespace of
// cgroups it is what the container's own group counts, which is the root there
// and has a file that the machine's has not: vmstat has all of the host.
func (w *Watcher) kernelKills() (n uint64, ok bool) {
	var f cgroups.Figures
	if err := w.files.Read("/", cgroups.PartEvents, &f); err == nil && f.Events.OOMKill.Known {
		return f.Events.OOMKill.Value, true
	}
	data, err := os.ReadFile(w.cfg.VMStat)
	if err != nil {
		return 0, false
	}
	return parseKills(data)
}

// parseKills finds oom_kill in vmstat's lines of "key value".
func parseKills(vmstat []byte) (n uint64, ok bool) {
	for line := range bytes.Lines(vmstat) {
		if value, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
