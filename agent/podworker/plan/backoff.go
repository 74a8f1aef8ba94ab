package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// The crash-loop wait as the kubelet has it (pkg/kubelet/kubelet.go and
// k8s.io/client-go/util/flowcontrol.Backoff): the first restart is immediate,
// the next waits initialBackoff, and the wait doubles up to the longest. It
// starts over when a container ran, or its end lies back, more than twice the
// longest wait.
const (
	initialBackoff    = 10 * time.Second
	defaultMaxBackoff = 300 * time.Second
)

// What containerd says of a container whose task it did not find at its start
// (internal/cri/server/restart.go): the power went, or somebody killed the
// shim.
const (
	lostExitCode = 255
	lostReason   = "Unknown"
)

// backoff answers how long after the end of last to wait for the next start,
// and the wait to store with that one. A container that did not end by itself
// (it is still there and will be killed) is not waited for.
func (p *planner) backoff(c *v1.Container, last *container.Container) (wait, next time.Duration) {
	first := min(initialBackoff, p.max)
	stored := min(max(last.Backoff, 0), p.max)
	ended := last.State == container.StateExited
	if ended && last.ExitCode == lostExitCode && last.Reason == lostReason {
		return 0, stored
	}
	end := p.Now
	if ended {
		end = last.FinishedAt
	}
	stable := 2 * p.max
	ran := !last.StartedAt.IsZero() && end.Sub(last.StartedAt) > stable
	if stored == 0 || ran || p.Now.Sub(end) > stable || p.changed(c, last) {
		return 0, first
	}
	if !ended {
		return 0, min(2*stored, p.max)
	}
	return stored, min(2*stored, p.max)
}

// wait plans to start c not before the time given. The message has the
// kubelet's shape, which people search logs and events for.
func (p *planner) wait(c *v1.Container, wait time.Duration, until time.Time) {
	if p.out.Waiting == nil {
		p.out.Waiting = make(map[string]Waiting, 1)
	}
	p.out.Waiting[c.Name] = Waiting{
		Reason: ReasonCrashLoop,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
			wait, c.Name, p.Pod.Name, p.Pod.Namespace, p.Pod.UID),
		Until: until,
	}
	p.until(until)
}
