package podsync

import (
	"errors"
	"runtime"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/cgroups"
)

// reliefPeriod is the kernel's default period of cpu.max, in microseconds.
// reliefLeast is the smallest quota that a share leaves to pods.
const (
	throttlePeriod   = 100_000
	minThrottleQuota = 1_000
)

// errNoCgroups means that there is no cgroup yet through which to throttle pods.
var errNoCgroups = errors.New("throttle BestEffort pods: the agent makes no pod cgroups or the runtime has not reported its settings yet")

// ThrottleBestEffort limits all BestEffort pods together to a share of the node's CPU
// time, from 0 to 1, for a board that is too hot or undervolted. A share of 1
// or more removes the limit. The limit also applies to pods that start later,
// until the next call. Relieve blocks only on the kernel.
func (s *Syncer) ThrottleBestEffort(share float64) error {
	n, ok := s.PeekNode()
	if !ok || s.Cgroups == nil {
		return errNoCgroups
	}
	limit := cgroups.CPUMax{Quota: cgroups.Unlimited, Period: throttlePeriod}
	if share < 1 {
		limit.Quota = max(int64(share*float64(runtime.NumCPU())*throttlePeriod), minThrottleQuota)
	}
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	s.groups.bestEffortLimit = limit
	return s.ensureCgroup(criconfig.QoSCgroup(v1.PodQOSBestEffort, n), cgroups.Resources{CPUMax: limit})
}
