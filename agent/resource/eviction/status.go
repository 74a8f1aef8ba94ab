package eviction

import (
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/agent/wait"
)

// Status is what other components share with a Manager: they read the node conditions, and
// trigger checks. It exists before the Manager. Its methods do not block, and are safe for
// concurrent use.
type Status struct {
	conditions  atomic.Pointer[evictionapi.Conditions]
	trigger     wait.Wakeup
	created     time.Time
	triggeredAt atomic.Int64 // time of the first unhandled Trigger, since created; 0 means none
	limited     wait.Wakeup  // a pod with a limit on local storage was added
}

// NewStatus returns a Status without conditions.
func NewStatus() *Status {
	s := &Status{trigger: wait.NewWakeup(), created: time.Now(), limited: wait.NewWakeup()}
	s.conditions.Store(&evictionapi.Conditions{})
	return s
}

// Trigger triggers a check of the thresholds. One check handles all earlier triggers.
func (s *Status) Trigger() {
	s.triggeredAt.CompareAndSwap(0, int64(max(time.Since(s.created), 1)))
	s.trigger.Set()
}

// Conditions returns the current node conditions, for pod admission and the Node status.
func (s *Status) Conditions() evictionapi.Conditions { return *s.conditions.Load() }

// PodAdded is called for each added pod.
func (s *Status) PodAdded(p *v1.Pod) {
	if policy.HasLimit(p) {
		s.limited.Set()
	}
}

// takeTriggerTime returns the time of the first trigger since the last check, and resets it.
// Zero means that there was none.
func (s *Status) takeTriggerTime() time.Time {
	if since := s.triggeredAt.Swap(0); since > 0 {
		return s.created.Add(time.Duration(since))
	}
	return time.Time{}
}
