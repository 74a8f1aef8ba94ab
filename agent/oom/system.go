package oom

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/tinylet/tinylet/agent/criconfig"
)

// system compares the kills that no pod has with those before. It needs the
// lock.
func (w *Watcher) system(node *criconfig.Node, outside uint64, told []string) {
	if outside <= w.outside {
		return
	}
	w.outside = outside
	others := w.otherLimits(node)
	limited := others > w.others
	w.others = others
	if !limited && len(told) == 0 {
		w.systemOOM(nil)
	}
}

// otherLimits is how often the groups at the top beside the pods' ran into
// their limits. What runs in the root itself has none.
func (w *Watcher) otherLimits(node *criconfig.Node) (sum uint64) {
	mine, _, _ := strings.Cut(strings.TrimLeft(kubepods(node), "/"), "/")
	names, err := w.cfg.Tree.List("/")
	if err != nil {
		return 0
	}
	for _, name := range names {
		if name == mine {
			continue
		}
		if c, err := w.read("/" + name); err == nil {
			sum += c.oom
		}
	}
	return sum
}

// kernelKills is how many processes the kernel has killed for memory since it
// was booted, of the system's and of groups' (OOM_KILL in mm/oom_kill.c); ok is
// false for one older than Linux 4.13.
func (w *Watcher) kernelKills() (n uint64, ok bool) {
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
