//go:build board

package standalone

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
	"github.com/tinylet/tinylet/test/harness/board"
)

// probedPod has one exec and one HTTP probe of 10 s each.
func probedPod(name string) string {
	return manifest(`
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: busybox
    command: [sh, -c, "mkdir -p /www && echo ok > /www/healthz; exec httpd -f -p 8080 -h /www"]
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 10, timeoutSeconds: 10}
    readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 10, timeoutSeconds: 10}
`)
}

// TestProbeBudget measures what the agent's probes cost in an idle minute:
// ten pods with an exec and an HTTP probe every 10 s. The budget is 25 ms/s;
// other work on the machine that emulates the board shows in that figure, so
// what fails is a call of the runtime that no probe needs.
func TestProbeBudget(t *testing.T) {
	if arch() != board.ARM64 {
		t.Skip("the budget is that of the arm64 board")
	}
	if os.Getenv("BOARD_PROBES") == "" {
		t.Skip("minutes of measuring that want a quiet machine: make test-pod runs it, with BOARD_PROBES set")
	}
	n := boot(t, board.VMOptions{})
	want := map[string]string{}
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		want[name] = "Running"
		n.put(name+".yaml", probedPod(name))
	}
	n.eventually(5*time.Minute, "ten pods run and are ready", func(pods map[string]cli.PodDocument) string {
		if wrong := statuses(want)(pods); wrong != "" {
			return wrong
		}
		for name, p := range pods {
			if p.Ready != 1 {
				return name + " is not ready"
			}
		}
		return ""
	})
	n.sh("sleep 60") // the relist that follows the start is not of an idle minute
	pid := strconv.Itoa(n.status().PID)
	cpu, calls, since := n.cpu(pid), n.status().RuntimeCalls, n.now()
	n.sh("sleep 60")
	used, asked, elapsed := n.cpu(pid)-cpu, n.status().RuntimeCalls-calls, n.now().Sub(since)
	perSecond := float64(used.Milliseconds()) / elapsed.Seconds()
	n.Logf("budget: CPU of the agent with ten pods of one exec and one HTTP probe each: %.1f ms/s of 25 ms/s", perSecond)
	n.Logf("budget: calls to the runtime in that minute: %d, 60 of them probes", asked)
	n.Logf("budget: anonymous memory of the agent: %.1f MB", n.memory(pid, "RssAnon"))
	if asked < 50 || asked > 75 {
		n.Errorf("%d calls to the runtime, want 60 exec probes and little beside them", asked)
	}
	pods, err := n.pods()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range pods {
		if p.Restarts != 0 || p.Ready != 1 {
			t.Errorf("%s: %d restarts, %d ready", name, p.Restarts, p.Ready)
		}
	}
}
