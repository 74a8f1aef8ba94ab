package machine

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Load is what the machine has and uses at one moment. What is not known is
// zero.
type Load struct {
	// Boot is when the kernel started, by the clock as it is now.
	Boot time.Time
	// Memory and the others are in bytes; Available is what new work could
	// have without swapping (proc_meminfo(5)).
	Memory, Available, SwapTotal, SwapFree uint64
	// AvailableKnown tells an Available of 0 from one that is not known.
	AvailableKnown bool
	// Tasks are the threads that exist, MaxTasks how many may.
	Tasks, MaxTasks int64
}

// ReadLoad reads the load from below the roots: five small files. It fails
// where the memory cannot be told. It is safe for concurrent use.
func ReadLoad(r Roots, now time.Time) (Load, error) {
	m, err := readMeminfo(r)
	if err != nil {
		return Load{}, err
	}
	l := Load{Memory: m.total, Available: m.available, AvailableKnown: m.tellsAvailable, SwapTotal: m.swapTotal, SwapFree: m.swapFree}
	// The fourth field is running/all (proc_loadavg(5)).
	if fields := strings.Fields(readSmall(filepath.Join(r.proc(), "loadavg"))); len(fields) > 3 {
		_, all, _ := strings.Cut(fields[3], "/")
		l.Tasks = positive(all)
	}
	l.MaxTasks = maxTasks(r)
	// Seconds with two decimals. It runs on while a board is suspended, as the
	// boot time in /proc/stat does.
	up, _, _ := strings.Cut(readSmall(filepath.Join(r.proc(), "uptime")), " ")
	if seconds, err := strconv.ParseFloat(up, 64); err == nil && seconds >= 0 && seconds < 1e9 {
		l.Boot = now.Add(-time.Duration(seconds * float64(time.Second)))
	}
	return l, nil
}

// positive is a number above 0, or 0.
func positive(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// most is a limit, and no limit where there is none to be read.
func most(text string) int64 {
	if n := positive(strings.TrimSpace(text)); n > 0 {
		return n
	}
	return math.MaxInt64
}
