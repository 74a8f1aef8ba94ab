package probe

import (
	"time"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
)

// Count is what has become of one probe of a container, since the agent knows
// the pod and over all restarts of the container.
type Count struct {
	// Kind is Startup, Liveness or Readiness.
	Kind      string
	Pod       pod.Ref
	Container string
	// Successful has warnings in it. What could not be run at all is in
	// neither.
	Successful, Failed uint64
	// Durations are those of successful probes, with the attempts that could
	// not be run; nil if there was none.
	Durations *metrics.Histogram
}

// tally is a Count while it grows. The manager's lock guards it.
type tally struct {
	failed uint64
	took   metrics.Histogram // of what was successful
}

// count counts a run.
func (t *tally) count(ok bool, took time.Duration) {
	if !ok {
		t.failed++
		return
	}
	t.took.Observe(took.Seconds())
}

// Counts are how the probes went of all pods that were not forgotten, as they
// are now, in no order. Probes that never ran are not told.
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
