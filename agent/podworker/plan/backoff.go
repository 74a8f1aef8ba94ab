package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// The crash loop backoff follows the kubelet (pkg/kubelet/kubelet.go and
// k8s.io/client-go/util/flowcontrol.Backoff). The first restart is immediate,
// the next one waits initialBackoff, and each further wait doubles up to the
// maximum. The backoff is reset when a container ran for more than twice the
// maximum, or when its end is longer ago than that.
const (
	initialBackoff    = 10 * time.Second
	defaultMaxBackoff = 300 * time.Second
)

// The exit code and reason that containerd reports for a container whose task
// it did not find when containerd started (internal/cri/server/restart.go): the
// power failed, or the shim was killed.
const (
	lostExitCode = 255
	lostReason   = "Unknown"
)

// backoff returns the wait between the end of last and the next start, and the
// backoff to store with that start. There is no wait for a container that has not
// exited: it is killed before the start, or was lost with its sandbox.
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

// wait records that c waits until until. The message has the kubelet's form, since
// operators search for it.
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
	p.wakeAt(until)
}
