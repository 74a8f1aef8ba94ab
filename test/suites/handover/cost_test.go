//go:build adopt

package handover

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// probedPods is how many pods TestProbeCost has.
const probedPods = 10

// probedPod has an exec and an HTTP probe of 10 s each. Its UID is given, so
// that one agent keeps the pods of the other.
func probedPod(i int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: p%d, uid: 00000000-0000-4000-8000-%012d}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %s
    command: [sh, -c, "mkdir -p /www && echo ok > /www/healthz; exec httpd -f -p 8080 -h /www"]
    livenessProbe: {exec: {command: ["true"]}, periodSeconds: 10, timeoutSeconds: 10}
    readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 10, timeoutSeconds: 10}
`, i, i, board.BusyboxImage)
}

// TestProbeCost measures what each agent takes of the same board in a minute
// in which nothing happens but the probes of ten pods. How fast the board is
// depends on the machine that emulates it; the ratio does not.
func TestProbeCost(t *testing.T) {
	l := newLab(t)
	l.stopTinylet()
	var stock, ours time.Duration
	l.step("a stock kubelet has ten probed pods", func() {
		for i := range probedPods {
			name := path.Join(manifestDir, fmt.Sprintf("p%d.yaml", i))
			if err := l.vm.Put(t.Context(), name, strings.NewReader(probedPod(i)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		k := l.startKubelet()
		l.eventually("all pods are ready for the kubelet", func() (string, bool) {
			got, err := l.kubeletPods()
			return allReady(got, err)
		})
		stock = l.cost(strings.TrimSpace(l.shell("cat " + kubeletPID)))
		k.stop()
	})
	l.step("tinylet has the same pods", func() {
		l.startTinylet()
		l.eventually("all pods are ready for tinylet", func() (string, bool) {
			got, err := l.ps()
			return allReady(got, err)
		})
		ours = l.cost(strings.TrimSpace(l.shell("pidof tinylet | tr ' ' '\\n' | tail -n 1")))
	})
	t.Logf("CPU with ten pods of one exec and one HTTP probe each 10 s: stock kubelet %.1f ms/s, tinylet %.1f ms/s, %.0f%% of it",
		perSecond(stock), perSecond(ours), 100*float64(ours)/float64(stock))
	if ours >= stock {
		t.Error("tinylet takes more than the kubelet")
	}
}

func allReady(got map[string]outcome, err error) (string, bool) {
	if err != nil {
		return err.Error(), false
	}
	ready := 0
	for _, o := range got {
		ready += o.ready
	}
	return fmt.Sprintf("%d of %d are", ready, probedPods), ready == probedPods
}

func perSecond(cpu time.Duration) float64 { return float64(cpu.Milliseconds()) / costMinute.Seconds() }

const costMinute = time.Minute

// cost is the CPU time that a process takes in a minute, after one in which
// its start has been forgotten.
func (l *lab) cost(pid string) time.Duration {
	l.t.Helper()
	l.wait(time.Minute)
	before := l.cpu(pid)
	l.shell("sleep " + strconv.Itoa(int(costMinute.Seconds()))) // of the board's time
	used := l.cpu(pid) - before
	l.say("process %s, %s: %v of CPU in %v", pid, l.shell("tr '\\0' ' ' < /proc/"+pid+"/cmdline"), used, costMinute)
	return used
}

// cpu is what a process took so far.
func (l *lab) cpu(pid string) time.Duration {
	l.t.Helper()
	_, stat, _ := strings.Cut(l.shell("cat /proc/"+pid+"/stat"), ") ")
	fields := strings.Fields(stat)
	if len(fields) < 13 {
		l.t.Fatalf("/proc/%s/stat: %q", pid, stat)
	}
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime (proc(5)), 10 ms each
		n, err := strconv.Atoi(f)
		if err != nil {
			l.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
