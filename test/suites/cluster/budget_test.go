//go:build cluster

package cluster

import (
	"strconv"
	"strings"
	"time"
)

// usage is what the agent and its network have used since the board's start.
type usage struct {
	cpu  time.Duration
	wire int64 // bytes, both ways, with all headers
	at   time.Duration
}

func (l lab) usage() usage {
	l.Helper()
	f := strings.Fields(l.sh(`cut -d' ' -f14,15 /proc/` + agentPID + `/stat
cat /sys/class/net/eth0/statistics/rx_bytes /sys/class/net/eth0/statistics/tx_bytes
cut -d' ' -f1 /proc/uptime`))
	var n [4]int64
	for i := range n {
		v, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			l.Fatalf("usage %q: %v", f, err)
		}
		n[i] = v
	}
	up, err := strconv.ParseFloat(f[4], 64)
	if err != nil {
		l.Fatalf("usage %q: %v", f, err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100
	return usage{cpu: time.Duration(n[0]+n[1]) * tick, wire: n[2] + n[3], at: time.Duration(up * float64(time.Second))}
}

// idle prints what a node without pods costs.
func (l lab) idle() {
	time.Sleep(30 * time.Second)
	before := l.usage()
	time.Sleep(2 * time.Minute)
	after := l.usage()
	took := after.at - before.at
	l.Logf("budget: idle CPU of the joined agent without pods: %.1f ms/s of 7 ms/s",
		float64((after.cpu-before.cpu).Milliseconds())/took.Seconds())
	l.Logf("budget: idle wire traffic, all headers: %.2f MB/h of 0.5 MB/h",
		float64(after.wire-before.wire)/1e6*3600/took.Seconds())
	l.memory("without pods", 9)
}

// memory prints the agent's anonymous memory.
func (l lab) memory(when string, budget int) {
	l.Helper()
	text := l.sh(`awk '/^RssAnon|^VmRSS/ {print $2}' /proc/` + agentPID + `/status`)
	f := strings.Fields(text)
	if len(f) != 2 {
		l.Fatalf("memory %q", text)
	}
	rss, err1 := strconv.ParseInt(f[0], 10, 64)
	anon, err2 := strconv.ParseInt(f[1], 10, 64)
	if err1 != nil || err2 != nil {
		l.Fatalf("memory %q", text)
	}
	l.Logf("budget: anonymous memory of the joined agent %s: %.1f MB of %d MB (RSS %.1f MB)",
		when, float64(anon)*1024/1e6, budget, float64(rss)*1024/1e6)
}
