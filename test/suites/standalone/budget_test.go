//go:build board

package standalone

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
)

// budgets measures an idle minute with ten pods and prints it. Times are the
// emulator's, about 15 times those of a real core.
func budgets(n node) {
	want := map[string]string{}
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		want[name] = "Running"
		n.put(name+".yaml", sleeper(name, 1))
	}
	n.eventually(4*time.Minute, "ten pods run", statuses(want))
	n.sh("sleep 20")
	pid := strconv.Itoa(n.status().PID)
	calls, cpu := n.status().RuntimeCalls, n.cpu(pid)
	start, sleeps := time.Now(), n.sleeps(pid)
	n.sh("sleep 60")
	woken, cpuAfter := n.sleeps(pid)-sleeps, n.cpu(pid)
	elapsed := time.Since(start)
	callsAfter := n.status().RuntimeCalls
	anon, rss := n.memory(pid, "RssAnon"), n.memory(pid, "VmRSS")

	perSecond := float64((cpuAfter - cpu).Milliseconds()) / elapsed.Seconds()
	n.Logf("budget: agent anonymous memory with 10 pods: %.1f MB of 12 MB (RSS %.1f MB)", anon, rss)
	n.Logf("budget: idle CPU of the agent with 10 pods: %.1f ms/s of 15 ms/s", perSecond)
	n.Logf("budget: calls to the runtime in an idle minute: %d, fewer than 5", callsAfter-calls)
	n.Logf("threads of the agent woken in an idle minute: %d times", woken)
	if anon > 12 {
		n.Errorf("%.1f MB of anonymous memory, want at most 12", anon)
	}
	if callsAfter-calls >= 5 {
		n.Errorf("%d calls to the runtime in an idle minute, want fewer than 5", callsAfter-calls)
	}
}

func (n node) status() local.Status {
	n.Helper()
	var st local.Status
	if err := n.ask(&st, "status"); err != nil {
		n.Fatal(err)
	}
	return st
}

// cpu is what a process has used, from /proc/PID/stat (proc_pid_stat(5)).
func (n node) cpu(pid string) time.Duration {
	n.Helper()
	_, rest, _ := strings.Cut(n.sh("cat /proc/%s/stat", pid), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		n.Fatalf("/proc/%s/stat: %q", pid, rest)
	}
	user, err := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err != nil || err2 != nil {
		n.Fatalf("/proc/%s/stat: %q", pid, rest)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // ticks of 100 Hz
}

// sleeps is how often threads of a process have gone to sleep, and were woken.
func (n node) sleeps(pid string) int {
	n.Helper()
	sum := n.sh("cat /proc/%s/task/*/status | awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }'", pid)
	count, err := strconv.Atoi(sum)
	if err != nil {
		n.Fatalf("sleeps of process %s: %q", pid, sum)
	}
	return count
}

// memory is a field of /proc/PID/status in MB.
func (n node) memory(pid, field string) float64 {
	n.Helper()
	f := strings.Fields(n.sh("grep ^%s: /proc/%s/status", field, pid))
	if len(f) != 3 {
		n.Fatalf("%s of %s: %q", field, pid, f)
	}
	kb, err := strconv.Atoi(f[1])
	if err != nil {
		n.Fatal(err)
	}
	return float64(kb) / 1000
}
