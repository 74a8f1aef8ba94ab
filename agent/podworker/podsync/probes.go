package podsync

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/podworker/plan"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// verdicts returns the pod's probe results for the plan, by container ID.
func (s *Syncer) verdicts(uid types.UID) map[string]plan.Probe {
	results := s.Probes.Results(uid)
	if len(results) == 0 {
		return nil
	}
	out := make(map[string]plan.Probe, len(results))
	for id, r := range results {
		p := plan.Probe{Started: r.Started}
		if r.Failed != nil {
			p.Failed, p.Kind, p.Grace = true, r.Failed.Kind, r.Failed.Grace
		}
		out[id] = p
	}
	return out
}

// findings returns the pod's probe results for the status, by container ID.
func (s *Syncer) findings(uid types.UID) map[string]podstatus.Probe {
	results := s.Probes.Results(uid)
	if len(results) == 0 {
		return nil
	}
	out := make(map[string]podstatus.Probe, len(results))
	for id, r := range results {
		out[id] = podstatus.Probe{Started: r.Started, Ready: r.Ready}
	}
	return out
}
