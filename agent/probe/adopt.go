package probe

import (
	"math/rand/v2"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// adoptWithin is the time in which the containers that the agent found
// running are asked for what their state is based on.
const adoptWithin = 2 * time.Second

// adopt puts in what a container had that ran before the agent did. What the
// API server remembers of it counts. Where nobody remembers, it has started
// if its startup probe had its last word long ago, or if what waits for it
// exists; and it is taken for ready until its next readiness probe, which
// comes at once and whose result counts alone, unless it is too young to have
// been probed.
func (t *target) adopt(now, startedAt time.Time, remembered *v1.ContainerStatus, overtaken bool) {
	age := min(max(now.Round(0).Sub(startedAt), 0), 365*24*time.Hour)
	t.begun = now.Add(-age)
	if s := t.checks[startup]; s != nil {
		t.result.Started = overtaken || age >= s.span()
		if remembered != nil && remembered.Started != nil {
			t.result.Started = *remembered.Started
		}
		s.off = t.result.Started
	}
	r := t.checks[readiness]
	switch {
	case r == nil:
		t.result.Ready = t.result.Started
	case !t.result.Started:
	case remembered != nil:
		t.result.Ready = remembered.Ready
	default:
		t.result.Ready = age >= r.delay
		r.open = t.result.Ready
	}
}

// phase is when an adopted container's check runs first: soon where its state
// depends on it, else at a random time within its period.
func (c *check) phase(now time.Time) time.Time {
	within := c.period
	if c.kind != liveness && c.period > adoptWithin {
		within, c.spread = adoptWithin, true
	}
	due := now.Add(fraction(within))
	if earliest := c.of.begun.Add(c.delay); due.Before(earliest) {
		return earliest
	}
	return due
}

// fraction is a random part of d.
func fraction(d time.Duration) time.Duration {
	return time.Duration(rand.Float64() * float64(d)) //nolint:gosec // nobody gains from guessing it
}

// overtaken says whether a container exists that was made after c, which
// tells of an init container that it has started.
func overtaken(o *container.Observed, c *container.Container) bool {
	for i := range o.Containers {
		other := &o.Containers[i]
		if other.SandboxID == c.SandboxID && other.Name != c.Name && other.CreatedAt.After(c.StartedAt) {
			return true
		}
	}
	return false
}

// remembered is what the API server has of that very container, or nil. What
// a manifest says of its own status counts for nothing.
func remembered(p *v1.Pod, id string) *v1.ContainerStatus {
	if pod.IsStatic(p) {
		return nil
	}
	for _, list := range [2][]v1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if _, bare, _ := strings.Cut(list[i].ContainerID, "://"); bare == id {
				return &list[i]
			}
		}
	}
	return nil
}
