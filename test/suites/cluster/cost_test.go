//go:build cluster

package cluster

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestServerCost measures what the node's API costs while nobody calls it:
// agents with and without it, in turn, on one board.
func TestServerCost(t *testing.T) {
	l := newLab(t)
	l.until("the node is Ready", l.nodeReady)
	for round := range 2 {
		for _, on := range []string{"false", "true"} {
			l.put("/etc/tinylet/config.yaml", config+"enableServer: "+on+"\n")
			l.sh("/etc/init.d/S50tinylet restart")
			l.until("the agent answers, and its API as it should", func() string {
				listens := l.sh("netstat -ltn | grep -c :10250 || true") != "0"
				if listens != (on == "true") || l.sh("wget -q -O - http://127.0.0.1:10248/healthz || true") != "ok" {
					return "not yet"
				}
				return ""
			})
			time.Sleep(45 * time.Second)
			before := l.usage()
			time.Sleep(time.Minute)
			after := l.usage()
			anon, err := strconv.Atoi(strings.TrimSpace(l.sh(`awk '/^RssAnon/ {print $2}' /proc/` + agentPID + `/status`)))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("round %d, enableServer %s: %.1f ms/s, anonymous memory %.2f MB", round+1, on,
				float64((after.cpu-before.cpu).Milliseconds())/(after.at-before.at).Seconds(), float64(anon)*1024/1e6)
		}
	}
}
