package podsync

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/plan"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
)

// allocate allocates the exclusive CPUs that the pod's containers request,
// before any of them starts. If there are not enough, it rejects a pod of which
// nothing has run yet, and refused is true. A pod that runs, or has run, uses the shared
// CPUs until a sync can allocate some: another agent, or this one with another
// configuration, has admitted it.
func (s *Syncer) allocate(ctx context.Context, p *v1.Pod, o *container.Observed, a *plan.Actions, f *syncState) (result podworker.Result, refused bool, err error) {
	if s.CPUs == nil || a.Done || !a.CreateSandbox && len(a.Start) == 0 && !o.Running() {
		return podworker.Result{}, false, nil
	}
	err = s.CPUs.Allocate(ctx, p)
	r := new(policy.AdmissionError)
	switch {
	case err == nil:
		return podworker.Result{}, false, nil
	case !errors.As(err, &r):
		if ctx.Err() == nil {
			s.Events.Warning(pod.RefOf(p), reasonFailed, "Error: "+err.Error())
		}
		return podworker.Result{}, false, err
	case len(o.Containers) == 0 && !o.Running():
		return s.reject(ctx, p, o, f, &admission.Rejection{Reason: r.Reason, Message: r.Message}), true, nil
	}
	s.Events.Warning(pod.RefOf(p), r.Reason, "The pod keeps running on shared CPUs: "+r.Message)
	return podworker.Result{}, false, nil
}

// nodeFor returns the node settings for the config of a container, or of the
// pod's sandbox and cgroup if the name is "". A container with exclusive CPUs
// has no CFS quota.
func (s *Syncer) nodeFor(uid types.UID, name string, n *criconfig.Node) *criconfig.Node {
	if !n.CPUCFSQuota || !s.CPUs.IgnoresQuota(uid, name) {
		return n
	}
	other := *n
	other.CPUCFSQuota = false
	return &other
}
