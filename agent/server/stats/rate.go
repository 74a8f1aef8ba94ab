package stats

import (
	"time"

	"github.com/tinylet/tinylet/cgroups"
)

const (
	// minWindow is the shortest time over which CPU usage is computed. The
	// kernel accounts a running task at each tick, 10 ms at 100 Hz, so the
	// error is at most one percent. Within minWindow the last usage is
	// reported again.
	minWindow = time.Second
	// maxWindow is the longest time: an average over hours is not the current
	// usage (defaultCachePeriod in pkg/kubelet/stats/cri_stats_provider.go).
	maxWindow = 10 * time.Minute
)

// cpuReading is the last read CPU time of a cgroup. It uses the monotonic clock,
// so setting the clock has no effect.
type cpuReading struct {
	at    time.Time
	usage uint64 // microseconds
	// rate is the usage up to at, in nanocores.
	rate cgroups.Number
}

// next returns the reading that replaces r, given the current CPU time in
// microseconds.
func (r cpuReading) next(now time.Time, usage uint64) cpuReading {
	window := now.Sub(r.at)
	switch {
	case r.at.IsZero():
		return cpuReading{at: now, usage: usage}
	case window < minWindow: // may be negative: a request that started later was faster
		return r
	case window > maxWindow || usage < r.usage:
		return cpuReading{at: now, usage: usage}
	}
	rate := float64(usage-r.usage) * 1e3 / window.Seconds()
	return cpuReading{at: now, usage: usage, rate: cgroups.Number{Value: uint64(rate), Known: true}}
}

// rates holds the last readings by cgroup path.
type rates map[string]cpuReading

// next returns the readings of rows, and sets the rates of rows.
func (r rates) next(rows []row) rates {
	out := make(rates, len(rows))
	for i := range rows {
		row := &rows[i]
		if row.stats.CPU.Usage.Known {
			now := r[row.cgroup].next(row.at, row.stats.CPU.Usage.Value)
			out[row.cgroup], row.rate = now, now.rate
		}
	}
	return out
}
