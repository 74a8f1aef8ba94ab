package stats

import (
	"time"

	"github.com/tinylet/tinylet/cgroups"
)

const (
	// minWindow is the shortest time that a usage is computed over. A task
	// that runs is accounted for at each tick, 10 ms at 100 Hz, so that it is
	// right to a hundredth; within it the last usage is told again.
	minWindow = time.Second
	// maxWindow is the longest: an average of hours is nobody's current usage
	// (defaultCachePeriod in pkg/kubelet/stats/cri_stats_provider.go).
	maxWindow = 10 * time.Minute
)

// reading is a group's CPU time as it was last read. Its time goes by the
// monotonic clock, so setting the clock changes nothing.
type reading struct {
	at    time.Time
	usage uint64 // microseconds
	// rate is the usage up to then, in billionths of a core.
	rate cgroups.Figure
	pass uint64
}

// next is the reading that takes r's place when the CPU time is usage now.
func (r reading) next(now time.Time, usage uint64) reading {
	window := now.Sub(r.at)
	switch {
	case r.at.IsZero():
		return reading{at: now, usage: usage}
	case window < minWindow: // or below zero: a request that began later was faster
		return r
	case window > maxWindow || usage < r.usage:
		return reading{at: now, usage: usage}
	}
	rate := float64(usage-r.usage) * 1e3 / window.Seconds()
	return reading{at: now, usage: usage, rate: cgroups.Figure{Value: uint64(rate), Known: true}}
}

// rates are the last readings by cgroup path.
type rates map[string]reading

// update keeps the readings of rows, tells them their rates, and forgets
// groups that are not among them.
func (r rates) update(rows []row) {
	var pass uint64
	for _, old := range r {
		pass = old.pass + 1 // the same for all
		break
	}
	for i := range rows {
		row := &rows[i]
		if !row.figures.CPU.Usage.Known {
			continue
		}
		now := r[row.cgroup].next(row.at, row.figures.CPU.Usage.Value)
		now.pass = pass
		r[row.cgroup] = now
		row.rate = now.rate
	}
	for path, old := range r {
		if old.pass != pass {
			delete(r, path)
		}
	}
}
