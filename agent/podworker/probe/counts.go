package probe

import (
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
)

// Count has the counters of one probe of a container, over all restarts of the
// container, since the agent first observed the pod.
type Count struct {
	// Kind is Startup, Liveness or Readiness.
	Kind      string
	Pod       pod.Ref
	Container string
	// Successful includes warnings. A probe that could not be run counts in
	// neither.
	Successful, Failed uint64
	// Durations are the durations in seconds of successful probes, including
	// attempts that could not be run; nil if no probe succeeded.
	Durations *metrics.Histogram
}

// tally has the values of a Count. The manager's lock guards it.
type tally struct {
	failed uint64
	took   metrics.Histogram // durations of successful runs
}

// Counts returns a copy of the counters of all pods that were observed and not removed, in
// no defined order. It omits probes without a success or a failure.
func (m *Manager) Counts() []Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Count
	for _, st := range m.pods {
		for i := range st.containers {
			for k, t := range st.containers[i].tallies {
				if t == nil {
					continue
				}
				c := Count{Kind: kind(k).String(), Pod: pod.RefOf(st.pod), Container: st.containers[i].c.Name, Successful: t.took.Count(), Failed: t.failed}
				if c.Successful > 0 {
					c.Durations = t.took.Clone()
				}
				if c.Successful+c.Failed > 0 {
					out = append(out, c)
				}
			}
		}
	}
	return out
}
