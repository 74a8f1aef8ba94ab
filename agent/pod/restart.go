package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// RestartPolicy returns the container's own restart policy, else the pod's. It
// returns Always if neither has a known value.
func RestartPolicy(s *v1.PodSpec, c *v1.Container) v1.RestartPolicy {
	for _, p := range []v1.RestartPolicy{v1.RestartPolicy(ptr.Deref(c.RestartPolicy, "")), s.RestartPolicy} {
		switch p {
		case v1.RestartPolicyNever, v1.RestartPolicyOnFailure, v1.RestartPolicyAlways:
			return p
		}
	}
	return v1.RestartPolicyAlways
}

// ShouldRestart reports whether a main or init container that exited with exitCode is
// to be restarted: by the first of its rules that matches, else by its policy
// (ContainerShouldRestart in pkg/api/v1/pod/util.go, KEP-5307). Rules count only for a
// container with a restart policy of its own. ShouldRestart does not consider that an
// init container is not restarted after exit code 0.
func ShouldRestart(s *v1.PodSpec, c *v1.Container, exitCode int32) bool {
	if c.RestartPolicy != nil {
		switch matched(c, exitCode) {
		case v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers:
			return true
		}
	}
	policy := RestartPolicy(s, c)
	return policy == v1.RestartPolicyAlways || policy == v1.RestartPolicyOnFailure && exitCode != 0
}

// RestartsAllContainers reports whether the exit of a main or init container with exitCode
// restarts all containers of its pod (KEP-5532).
func RestartsAllContainers(c *v1.Container, exitCode int32) bool {
	return matched(c, exitCode) == v1.ContainerRestartRuleActionRestartAllContainers
}

// HasRestartAllRule reports whether any container has a rule with the action
// RestartAllContainers.
func HasRestartAllRule(s *v1.PodSpec) bool {
	for c, kind := range Containers(s) {
		if kind != Ephemeral && slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		}) {
			return true
		}
	}
	return false
}

// matched returns the action of the first rule that matches the exit code, or ""
// if none does. A rule without exit codes, or with an unknown operator, never
// matches.
func matched(c *v1.Container, exitCode int32) v1.ContainerRestartRuleAction {
	for i := range c.RestartPolicyRules {
		codes := c.RestartPolicyRules[i].ExitCodes
		if codes == nil {
			continue
		}
		listed := slices.Contains(codes.Values, exitCode)
		if listed && codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn ||
			!listed && codes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn {
			return c.RestartPolicyRules[i].Action
		}
	}
	return ""
}
