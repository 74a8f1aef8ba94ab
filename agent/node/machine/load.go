package machine

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Load is the capacity and usage of the machine at one moment. An unknown value is
// zero.
type Load struct {
	// Boot is when the kernel started, by the current setting of the clock.
	Boot time.Time
	// Memory, Available, SwapTotal and SwapFree are in bytes. Available is what new
	// work could use without swapping (proc_meminfo(5)).
	Memory, Available, SwapTotal, SwapFree uint64
	// AvailableKnown distinguishes an Available of 0 from an unknown one.
	AvailableKnown bool
	// Tasks is the number of threads, MaxTasks its limit.
	Tasks, MaxTasks int64
}

// ReadLoad reads up to seven small files below the roots. It fails if /proc/meminfo
// cannot be read or has no MemTotal. It is safe for concurrent use.
func ReadLoad(r Roots, now time.Time) (Load, error) {
	l, err := readMeminfo(r)
	if err != nil {
		return Load{}, err
	}
	// The fourth field is running/all (proc_loadavg(5)).
	if fields := strings.Fields(readSmall(filepath.Join(r.proc(), "loadavg"))); len(fields) > 3 {
		_, all, _ := strings.Cut(fields[3], "/")
		l.Tasks = positive(all)
	}
	l.MaxTasks = maxTasks(r)
	// The uptime is in seconds with two decimals. It advances while a board is
	// suspended, as the boot time in /proc/stat does.
	up, _, _ := strings.Cut(readSmall(filepath.Join(r.proc(), "uptime")), " ")
	if seconds, err := strconv.ParseFloat(up, 64); err == nil && seconds >= 0 && seconds < 1e9 {
		l.Boot = now.Add(-time.Duration(seconds * float64(time.Second)))
	}
	return l, nil
}

// positive parses a number with white space around it. It returns 0 for text that is not a
// positive number.
func positive(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
