package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// failure says whether a running container has to be killed for what its
// probes or its postStart hook found, and why in the kubelet's words
// (computePodActions and computeInitContainerActions in
// pkg/kubelet/kuberuntime). What happens after it the caller adds.
func (p *planner) failure(kind pod.Kind, c *v1.Container, cur *container.Container) (message string, failed bool) {
	r := p.Probes[cur.ID]
	if !r.Failed {
		return "", false
	}
	message = "Container " + c.Name
	if kind == pod.Init {
		message = "Init container " + c.Name
	}
	switch r.Kind {
	case KindPostStart:
		return "FailedPostStartHook", true
	case KindStartup:
		return message + " failed startup probe", true
	default:
		return message + " failed liveness probe", true
	}
}

// killFailed plans the end of a main container that failed, and its restart
// where the policy has one. The rules for exit codes are not looked at: it
// has none yet.
func (p *planner) killFailed(c *v1.Container, cur *container.Container, message string) {
	if pod.RestartPolicy(&p.Pod.Spec, c) == v1.RestartPolicyNever {
		p.ending++
		p.kill(c, cur, message)
		return
	}
	if p.Probes[cur.ID].Kind != KindPostStart {
		message += ", will be restarted"
	}
	p.kept++
	p.kill(c, cur, message)
	p.startKilled(c, pod.Main, cur)
}

// startKilled plans the start after a kill. The kubelet counts the crash-loop
// wait from the end before, so a container that ran for longer than its wait
// comes back at once; for any other the wait begins at its end, and the plan
// after the kill knows that.
func (p *planner) startKilled(c *v1.Container, kind pod.Kind, cur *container.Container) {
	stored := min(max(cur.Backoff, 0), p.max)
	if ran := p.Now.Sub(cur.StartedAt); ran >= 0 && ran < stored {
		return
	}
	p.start(c, kind, cur)
}
