package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
)

func (s *system) describeContainer(t *table, p *v1.Pod, c *ContainerDocument) {
	t.add("  " + containerName(c) + ":")
	t.nested("State", containerStatus(c))
	t.nested("Message", c.Message)
	t.nested("Started", s.moment(c.StartedAt))
	t.nested("Finished", s.moment(c.FinishedAt))
	if status := pod.FindContainerStatus(&p.Status, c.Name); status != nil && status.LastTerminationState.Terminated != nil {
		last := status.LastTerminationState.Terminated
		text := fmt.Sprintf("%s (exit %d)", pod.TerminationReason(last), last.ExitCode)
		if at := s.moment(timePointer(last.FinishedAt.Time)); at != "" {
			text += ", finished " + at
		}
		t.nested("Last state", text)
		t.nested("", last.Message)
	}
	t.nested("Ready", yesNo(c.Ready))
	t.nested("Restarts", s.restarts(c.Restarts, c.LastRestart))
	t.nested("Image", c.Image)
	if spec, _ := pod.FindContainer(&p.Spec, c.Name); spec != nil {
		describeSpec(t, p, spec)
	}
	t.nested("Memory", memory(c.MemoryBytes))
	t.nested("ID", c.ID)
	t.nested("Log", c.LogPath)
}

// describeSpec adds the fields of the container's spec.
func describeSpec(t *table, p *v1.Pod, c *v1.Container) {
	t.nested("Target", targetOf(p, c.Name))
	t.nested("Command", strings.Join(append(slices.Clone(c.Command), c.Args...), " "))
	t.nested("Working dir", c.WorkingDir)
	t.nested("Restart", restartPolicy(c))
	t.nested("Limits", resources(c.Resources.Limits))
	t.nested("Requests", resources(c.Resources.Requests))
	t.nested("Ports", ports(c.Ports))
	t.nested("Startup", probe(c.StartupProbe))
	t.nested("Liveness", probe(c.LivenessProbe))
	t.nested("Readiness", probe(c.ReadinessProbe))
	if c.Lifecycle != nil {
		t.nested("PostStart", hook(c.Lifecycle.PostStart))
		t.nested("PreStop", hook(c.Lifecycle.PreStop))
		t.nested("Stop signal", string(ptr.Deref(c.Lifecycle.StopSignal, "")))
	}
	t.list("Environment", environment(c))
	t.list("Mounts", mounts(c))
}

// targetOf returns the target container of the ephemeral container name, or "".
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
			text += fmt.Sprintf(" if the exit code is %s %v", codes.Operator, codes.Values)
		}
	}
	return text
}

// probe formats a probe similarly to kubectl describe, with the defaults of the API
// for fields that are 0.
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
	text += fmt.Sprintf(", every %ds", cmp.Or(p.PeriodSeconds, 10))
	if p.InitialDelaySeconds > 0 {
		text += fmt.Sprintf(" after %ds", p.InitialDelaySeconds)
	}
	text += fmt.Sprintf(", timeout %ds, success threshold %d, failure threshold %d",
		cmp.Or(p.TimeoutSeconds, 1), cmp.Or(p.SuccessThreshold, 1), cmp.Or(p.FailureThreshold, 3))
	if p.TerminationGracePeriodSeconds != nil {
		text += ", grace period " + seconds(p.TerminationGracePeriodSeconds)
	}
	return text
}

func hook(h *v1.LifecycleHandler) string {
	switch {
	case h == nil:
		return ""
	case h.Sleep != nil:
		return "sleep " + seconds(&h.Sleep.Seconds)
	}
	return handler(h.Exec, h.HTTPGet, h.TCPSocket)
}

// handler formats the action of a probe or a hook.
func handler(exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction) string {
	switch {
	case exec != nil:
		return "exec " + strings.Join(exec.Command, " ")
	case get != nil:
		scheme := cmp.Or(strings.ToLower(string(get.Scheme)), "http")
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

// environment returns a line for each variable and for each envFrom source. It names
// the source of a value that is not in the pod's spec and does not print the value,
// because it may be a secret.
func environment(c *v1.Container) []string {
	var out []string
	for i := range c.EnvFrom {
		out = append(out, envFrom(&c.EnvFrom[i]))
	}
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			out = append(out, e.Name+"="+e.Value)
			continue
		}
		out = append(out, e.Name+" from "+envSource(e.ValueFrom))
	}
	return out
}

func envFrom(e *v1.EnvFromSource) string {
	text := "all"
	if e.Prefix != "" {
		text = e.Prefix + "*"
	}
	switch {
	case e.ConfigMapRef != nil:
		return text + " from configMap " + e.ConfigMapRef.Name + optional(e.ConfigMapRef.Optional)
	case e.SecretRef != nil:
		return text + " from secret " + e.SecretRef.Name + optional(e.SecretRef.Optional)
	}
	return text + " from nothing"
}

func envSource(s *v1.EnvVarSource) string {
	switch {
	case s.FieldRef != nil:
		return "field " + s.FieldRef.FieldPath
	case s.ResourceFieldRef != nil:
		return resourceField(s.ResourceFieldRef)
	case s.ConfigMapKeyRef != nil:
		return fmt.Sprintf("key %s of configMap %s", s.ConfigMapKeyRef.Key, s.ConfigMapKeyRef.Name) + optional(s.ConfigMapKeyRef.Optional)
	case s.SecretKeyRef != nil:
		return fmt.Sprintf("key %s of secret %s", s.SecretKeyRef.Key, s.SecretKeyRef.Name) + optional(s.SecretKeyRef.Optional)
	case s.FileKeyRef != nil:
		f := s.FileKeyRef
		return fmt.Sprintf("key %s of file %s in volume %s", f.Key, f.Path, f.VolumeName) + optional(f.Optional)
	}
	return "nothing"
}

func resourceField(r *v1.ResourceFieldSelector) string {
	text := "resource " + r.Resource
	if r.ContainerName != "" {
		text += " of container " + r.ContainerName
	}
	if !r.Divisor.IsZero() {
		text += " with divisor " + r.Divisor.String()
	}
	return text
}

func optional(set *bool) string {
	if set != nil && *set {
		return " (optional)"
	}
	return ""
}

// mounts returns a line for each volume mount and device.
func mounts(c *v1.Container) []string {
	var out []string
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		text := m.MountPath + " from " + m.Name
		if sub := m.SubPath + m.SubPathExpr; sub != "" {
			text += "/" + strings.TrimPrefix(sub, "/")
		}
		var more []string
		if m.ReadOnly {
			more = append(more, "read-only")
		}
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
			more = append(more, "recursive")
		}
		if p := m.MountPropagation; p != nil && *p != v1.MountPropagationNone {
			more = append(more, "propagation "+string(*p))
		}
		if len(more) > 0 {
			text += " (" + strings.Join(more, ", ") + ")"
		}
		out = append(out, text)
	}
	for i := range c.VolumeDevices {
		out = append(out, c.VolumeDevices[i].DevicePath+" is "+c.VolumeDevices[i].Name)
	}
	return out
}
