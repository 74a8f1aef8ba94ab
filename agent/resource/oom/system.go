package oom

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/cgroups"
)

// checkSystem compares the number of kills outside of pods with the previous one, and
// reports a system OOM if it rose, no other top-level cgroup recently hit a limit, and
// reported is empty. reported holds the victims that were reported already. The caller
// must hold the lock.
func (w *Watcher) checkSystem(node *criconfig.Node, outside uint64, reported []string) {
	now := time.Now()
	if others, err := w.otherLimits(node); err == nil {
		if anyRose(w.otherLimitHits, others) {
			w.otherLimitHitAt = now
		}
		w.otherLimitHits = others
	}
	if outside <= w.outsideKills {
		return
	}
	w.outsideKills = outside
	limited := isRecent(now, w.otherLimitHitAt)
	w.otherLimitHitAt = time.Time{}
	if !limited && len(reported) == 0 {
		w.systemOOM(nil)
	}
}

// cgroupLimitHits is the limit hit counter of a cgroup. A cgroup that is created again, as
// for a restarted service, has another ID and counts from 0.
type cgroupLimitHits struct{ group, oom uint64 }

// anyRose reports whether any of the cgroups hit its limit between the two readings.
func anyRose(before, now map[string]cgroupLimitHits) bool {
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

// otherLimits returns the limit hits of the top-level cgroups other than the pods',
// by name. Processes in the root cgroup have no limit.
func (w *Watcher) otherLimits(node *criconfig.Node) (map[string]cgroupLimitHits, error) {
	mine, _, _ := strings.Cut(strings.TrimLeft(kubepods(node), "/"), "/")
	names, err := w.cfg.Tree.List("/")
	if err != nil {
		return nil, err
	}
	limits := make(map[string]cgroupLimitHits)
	for _, name := range names {
		if name == mine {
			continue
		}
		id, err := w.cfg.Tree.ID(name)
		if err != nil {
			continue
		}
		if c, err := w.read("/" + name); err == nil {
			limits[name] = cgroupLimitHits{id, c.oom}
		}
	}
	return limits, nil
}

// kernelKills returns how many processes the kernel has OOM-killed since boot, by the
// system and by cgroups (OOM_KILL in mm/oom_kill.c). ok is false for kernels before
// Linux 4.13. In a container with a cgroup namespace it returns the counter of the
// container's own cgroup, which is the root there and has a memory.events file,
// unlike the host's root cgroup: vmstat counts the whole host.
func (w *Watcher) kernelKills() (n uint64, ok bool) {
	var f cgroups.Stats
	if err := w.files.Read("/", cgroups.PartEvents, &f); err == nil && f.Events.OOMKill.Known {
		return f.Events.OOMKill.Value, true
	}
	data, err := os.ReadFile(w.cfg.VMStat)
	if err != nil {
		return 0, false
	}
	return parseKills(data)
}

// parseKills returns oom_kill from the "key value" lines of vmstat.
func parseKills(vmstat []byte) (n uint64, ok bool) {
	for line := range bytes.Lines(vmstat) {
		if value, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
