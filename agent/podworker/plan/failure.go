package plan

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// failure reports whether a running container has to be killed because of a failed
// probe, and returns the kubelet's message (computePodActions and
// computeInitContainerActions in pkg/kubelet/kuberuntime). The caller appends whether
// the container is restarted.
func (p *planner) failure(kind pod.ContainerType, c *v1.Container, cur *container.Container) (message string, failed bool) {
	r := p.Probes[cur.ID]
	if r.Failed == "" {
		return "", false
	}
	message = "Container " + c.Name
	if kind == pod.Init {
		message = "Init container " + c.Name
	}
	return message + " failed " + strings.ToLower(r.Failed) + " probe", true
}

// killFailed plans the kill of a main container that failed, and its restart if
// the policy requires one. The rules for exit codes do not apply, since the
// container has no exit code yet.
func (p *planner) killFailed(c *v1.Container, cur *container.Container, message string) {
	if pod.RestartPolicy(&p.Pod.Spec, c) == v1.RestartPolicyNever {
		p.ending++
		p.kill(c, cur, message)
		return
	}
	p.remaining++
	p.kill(c, cur, message+", will be restarted")
	p.startKilled(c, pod.Main, cur)
}

// startKilled plans the start after a kill. The kubelet counts the crash loop backoff from
// the previous end, so a container that ran at least as long as its backoff is restarted
// at once. For others the backoff begins at their end, and the plan after the kill
// handles it.
func (p *planner) startKilled(c *v1.Container, kind pod.ContainerType, cur *container.Container) {
	stored := min(max(cur.Backoff, 0), p.max)
	if ran := p.Now.Sub(cur.StartedAt); ran >= 0 && ran < stored {
		return
	}
	p.start(c, kind, cur)
}
