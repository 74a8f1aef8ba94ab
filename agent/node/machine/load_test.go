package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLoad(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	const meminfo = "MemTotal:         498836 kB\nMemFree:          100 kB\nMemAvailable:     354516 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n"
	for _, row := range []struct {
		name  string
		files map[string]string
		want  Load
		fails bool
	}{
		{name: "all", files: map[string]string{
			"proc/meminfo": meminfo, "proc/loadavg": "0.00 0.01 0.05 1/79 1234\n", "proc/uptime": "90.50 170.00\n",
			"proc/sys/kernel/pid_max": "4194304\n", "proc/sys/kernel/threads-max": "3500\n",
		}, want: Load{
			Boot: now.Add(-90500 * time.Millisecond), Memory: 498836 << 10, Available: 354516 << 10, AvailableKnown: true, SwapTotal: 10 << 10, SwapFree: 4 << 10,
			Tasks: 79, MaxTasks: 3500,
		}},
		{name: "nothing is available", files: map[string]string{"proc/meminfo": "MemTotal: 1 kB\nMemAvailable: 0 kB\n"}, want: Load{Memory: 1 << 10, AvailableKnown: true}},
		{name: "memory alone", files: map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"}, want: Load{Memory: 1 << 10}},
		{name: "nonsense", files: map[string]string{
			"proc/meminfo": "MemTotal: 2 kB\nMemAvailable: -1 kB\nSwapTotal: x\n", "proc/loadavg": "a b c d", "proc/uptime": "-5 1\n",
			"proc/sys/kernel/pid_max": "0\n",
		}, want: Load{Memory: 2 << 10}},
		{name: "nothing", fails: true},
		{name: "no memory", files: map[string]string{"proc/meminfo": "MemFree: 1 kB\n"}, fails: true},
	} {
		got, err := ReadLoad(installed(t, row.files), now)
		if (err != nil) != row.fails {
			t.Errorf("%s: error %v", row.name, err)
		}
		if row.fails {
			continue
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}
