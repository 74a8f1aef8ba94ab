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

// allocate gives the pod the CPUs that its containers ask for alone, before
// anything of it starts, and refuses a pod of which nothing has run yet if
// there are none. One that runs, or did, shares CPUs until a sync finds some: it
// was admitted once, by another configuration or another agent.
func (s *Syncer) allocate(ctx context.Context, p *v1.Pod, o *container.Observed, a *plan.Actions, f *facts) (result podworker.Result, refused bool, err error) {
	if s.CPUs == nil || a.Done || !a.CreateSandbox && len(a.Start) == 0 && !o.Running() {
		return podworker.Result{}, false, nil
	}
	err = s.CPUs.Allocate(ctx, p)
	r := new(policy.Refusal)
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
	s.Events.Warning(pod.RefOf(p), r.Reason, "it goes on with CPUs that it shares: "+r.Message)
	return podworker.Result{}, false, nil
}

// nodeFor is the node for the config of a container, or of the pod's sandbox
// and cgroup where the name is "": who is alone on CPUs has no quota of their
// time.
func (s *Syncer) nodeFor(uid types.UID, name string, n *criconfig.Node) *criconfig.Node {
	if !n.CPUCFSQuota || !s.CPUs.Unbounded(uid, name) {
		return n
	}
	other := *n
	other.CPUCFSQuota = false
	return &other
}
