package cli

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

func (s *system) describeContainer(t *table, p *v1.Pod, c *ContainerDocument) {
	now, up := s.now(), s.uptime()
	t.add("  " + containerName(c) + ":")
	t.nested("State", containerStatus(c))
	t.nested("Message", c.Message)
	if c.StartedAt != nil {
		t.nested("Started", moment(*c.StartedAt, now, up))
	}
	if c.FinishedAt != nil {
		t.nested("Ended", moment(*c.FinishedAt, now, up))
	}
	if status := pod.FindContainerStatus(&p.Status, c.Name); status != nil && status.LastTerminationState.Terminated != nil {
		last := status.LastTerminationState.Terminated
		t.nested("Before", fmt.Sprintf("%s (exit %d), ended %s", pod.TerminationReason(last), last.ExitCode, moment(last.FinishedAt.Time, now, up)))
		t.nested("", last.Message)
	}
	t.nested("Ready", yes(c.Ready))
	t.nested("Restarts", restarts(c.Restarts, c.LastRestart, now, up))
	t.nested("Image", c.Image)
	if spec, _ := pod.FindContainer(&p.Spec, c.Name); spec != nil {
		describeSpec(t, p, spec)
	}
	t.nested("Memory", memory(c.MemoryBytes))
	t.nested("ID", c.ID)
	t.nested("Log", c.LogPath)
}

// describeSpec tells what was asked for.
func describeSpec(t *table, p *v1.Pod, c *v1.Container) {
	t.nested("Target", targetOf(p, c.Name))
	t.nested("Command", strings.Join(append(slices.Clone(c.Command), c.Args...), " "))
	t.nested("Working folder", c.WorkingDir)
	t.nested("Restart", restartPolicy(c))
	t.nested("Limits", resources(c.Resources.Limits))
	t.nested("Requests", resources(c.Resources.Requests))
	t.nested("Ports", ports(c.Ports))
	t.nested("Startup", probe(c.StartupProbe))
	t.nested("Liveness", probe(c.LivenessProbe))
	t.nested("Readiness", probe(c.ReadinessProbe))
	if c.Lifecycle != nil {
		t.nested("After start", hook(c.Lifecycle.PostStart))
		t.nested("Before stop", hook(c.Lifecycle.PreStop))
		if c.Lifecycle.StopSignal != nil {
			t.nested("Stop signal", string(*c.Lifecycle.StopSignal))
		}
	}
	t.list("Environment", environment(c))
	t.list("Mounts", mounts(c))
}

// targetOf is the container whose processes an ephemeral container sees.
func targetOf(p *v1.Pod, name string) string {
	for i := range p.Spec.EphemeralContainers {
		if c := &p.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TargetContainerName
		}
	}
	return ""
}

func restartPolicy(c *v1.Container) string {
	if c.RestartPolicy == nil {
		return ""
	}
	text := string(*c.RestartPolicy)
	for i := range c.RestartPolicyRules {
		rule := &c.RestartPolicyRules[i]
		text += "; " + string(rule.Action)
		if codes := rule.ExitCodes; codes != nil {
			text += fmt.Sprintf(" where the exit code is %s %v", codes.Operator, codes.Values)
		}
	}
	return text
}

// probe is in the words of kubectl describe, but for the defaults.
func probe(p *v1.Probe) string {
	if p == nil {
		return ""
	}
	text := handler(p.Exec, p.HTTPGet, p.TCPSocket)
	if p.GRPC != nil {
		text = fmt.Sprintf("grpc port %d", p.GRPC.Port)
		if p.GRPC.Service != nil && *p.GRPC.Service != "" {
			text += " service " + *p.GRPC.Service
		}
	}
	text += fmt.Sprintf(", every %ds", orDefault(p.PeriodSeconds, 10))
	if p.InitialDelaySeconds > 0 {
		text += fmt.Sprintf(" after %ds", p.InitialDelaySeconds)
	}
	text += fmt.Sprintf(", within %ds, succeeds by %d, fails by %d",
		orDefault(p.TimeoutSeconds, 1), orDefault(p.SuccessThreshold, 1), orDefault(p.FailureThreshold, 3))
	if p.TerminationGracePeriodSeconds != nil {
		text += ", grace period " + seconds(*p.TerminationGracePeriodSeconds)
	}
	return text
}

func orDefault(n, value int32) int32 {
	if n == 0 {
		return value
	}
	return n
}

func hook(h *v1.LifecycleHandler) string {
	switch {
	case h == nil:
		return ""
	case h.Sleep != nil:
		return "sleep " + seconds(h.Sleep.Seconds)
	}
	return handler(h.Exec, h.HTTPGet, h.TCPSocket)
}

// handler is what a probe or a hook does.
func handler(exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction) string {
	switch {
	case exec != nil:
		return "exec " + strings.Join(exec.Command, " ")
	case get != nil:
		scheme := strings.ToLower(string(get.Scheme))
		if scheme == "" {
			scheme = "http"
		}
		return fmt.Sprintf("get %s://%s:%s/%s", scheme, get.Host, get.Port.String(), strings.TrimPrefix(get.Path, "/"))
	case tcp != nil:
		return fmt.Sprintf("connect to %s:%s", tcp.Host, tcp.Port.String())
	}
	return "nothing"
}

func ports(list []v1.ContainerPort) string {
	var out []string
	for i := range list {
		text := fmt.Sprintf("%d/%s", list[i].ContainerPort, list[i].Protocol)
		text = strings.TrimSuffix(text, "/")
		if list[i].HostPort != 0 {
			text += fmt.Sprintf(" (host %d)", list[i].HostPort)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
