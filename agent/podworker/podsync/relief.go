package podsync

import (
	"errors"
	"runtime"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/cgroups"
)

// reliefPeriod is the kernel's own, in microseconds, and reliefLeast what is
// left of it to pods that are held down to nothing.
const (
	reliefPeriod = 100_000
	reliefLeast  = 1_000
)

// errNoGroups says that there is nothing yet by which pods could be held down.
var errNoGroups = errors.New("hold BestEffort pods down: the agent makes no cgroups, or the runtime has not told which they are")

// Relieve holds all BestEffort pods together down to a share of the machine's
// CPU time, from 0 to 1, for a board that is too hot or has too little
// voltage; from 1 on it lets them go. It holds until the next call, for pods
// that come as well, and blocks only on the kernel.
func (s *Syncer) Relieve(share float64) error {
	n, ok := s.PeekNode()
	if !ok || s.Cgroups == nil {
		return errNoGroups
	}
	limit := cgroups.CPUMax{Quota: cgroups.Unlimited, Period: reliefPeriod}
	if share < 1 {
		limit.Quota = max(int64(share*float64(runtime.NumCPU())*reliefPeriod), reliefLeast)
	}
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	s.groups.relief = limit
	return s.ensureCgroup(criconfig.QoSCgroup(v1.PodQOSBestEffort, n), cgroups.Resources{CPUMax: limit})
}
