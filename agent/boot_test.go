package agent

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
)

// After a reboot the pods come first: what is left of the old sandboxes is
// stopped once they run.
func TestOldSandboxesAreStoppedOnceThePodsRun(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		var wanted []*v1.Pod
		for i := range 6 {
			wanted = append(wanted, shell(t, fmt.Sprintf("web-%d", i), "Always", "sleep 100000"))
		}
		l.want(wanted...)
		l.start()
		l.settle(time.Minute)
		if got := len(l.running()); got != 6 {
			t.Fatalf("%d pods run", got)
		}
		l.kill()
		l.runtime.Reboot()
		before := len(l.runtime.Calls())
		l.bootID = "another"
		l.runtime.Inject("RunPodSandbox", fake.Fault{Delay: 3 * time.Second})
		l.start()
		l.settle(5 * time.Minute)
		if got := len(l.running()); got != 6 {
			t.Errorf("%d pods run after the reboot", got)
		}
		var order []string
		for _, c := range l.runtime.Calls()[before:] {
			if c.Method == "StartContainer" || c.Method == "StopPodSandbox" {
				order = append(order, c.Method)
			}
		}
		stops := 0
		for _, m := range order {
			if m == "StopPodSandbox" {
				stops++
			}
		}
		// Those that start last do so at the same time.
		if first := slices.Index(order, "StopPodSandbox"); stops != 6 || first <= 6-max(2, runtime.NumCPU()) {
			t.Errorf("%d sandboxes were stopped, the first after %d starts: %v", stops, first, order)
		}
	})
}
