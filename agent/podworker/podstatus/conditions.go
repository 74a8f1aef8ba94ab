package podstatus

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Reasons of conditions (pkg/kubelet/status/generate.go).
const (
	reasonPodCompleted   = "PodCompleted"
	reasonPodFailed      = "PodFailed"
	reasonNotReady       = "ContainersNotReady"
	reasonNotInitialized = "ContainersNotInitialized"
	reasonGatesNotReady  = "ReadinessGatesNotReady"
)

// kubeletConditions are the conditions that the kubelet sets, in addition to
// DisruptionTarget. All others are kept as the API server has them.
var kubeletConditions = []v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
	v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting,
}

// conditions sets the conditions. The phase and the container statuses must be
// set before.
func (g *generator) conditions(s *v1.PodStatus) {
	disruption := g.disruption(s)
	for _, c := range g.api.Conditions {
		if !slices.Contains(kubeletConditions, c.Type) && (c.Type != v1.DisruptionTarget || disruption == nil) {
			s.Conditions = append(s.Conditions, c)
		}
	}
	if disruption != nil {
		s.Conditions = append(s.Conditions, *disruption)
	}
	if !pod.IsTerminal(s.Phase) {
		s.Conditions = append(s.Conditions, g.Resize.List()...)
	}
	containersReady := g.containersReady(s)
	ready := containersReady
	ready.Type = v1.PodReady
	if ready.Status == v1.ConditionTrue {
		g.readinessGates(s.Conditions, &ready)
	}
	all := []v1.PodCondition{
		{Type: v1.PodReadyToStartContainers, Status: truth(g.Observed.UsableSandbox(g.Pod.Spec.HostNetwork) != nil)},
		g.podInitialized(s), ready, containersReady,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}
	if pod.HasRestartAllRule(&g.Pod.Spec) {
		all = append(all, g.allRestarting(s))
	}
	for _, c := range all {
		c.ObservedGeneration = s.ObservedGeneration
		c.LastTransitionTime = timeOf(g.Now)
		if was := pod.FindCondition(g.old.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		s.Conditions = append(s.Conditions, c)
	}
}

// disruption returns the condition DisruptionTarget. It returns a new one if the node ended
// the pod for a reason of the node, the phase is terminal and not suppressed, and the
// condition is not true already. Otherwise it returns the old one, or nil.
func (g *generator) disruption(s *v1.PodStatus) *v1.PodCondition {
	c := pod.FindCondition(g.old.Conditions, v1.DisruptionTarget)
	if g.Disruption == nil || g.suppressed || !pod.IsTerminal(s.Phase) || c != nil && c.Status == v1.ConditionTrue {
		return c
	}
	return &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
		Reason: g.Disruption.Reason, Message: g.Disruption.Message,
		ObservedGeneration: s.ObservedGeneration, LastTransitionTime: timeOf(g.Now),
	}
}

func truth(b bool) v1.ConditionStatus {
	if b {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

func (g *generator) containersReady(s *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	switch s.Phase {
	case v1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case v1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	case v1.PodPending, v1.PodRunning, v1.PodUnknown:
	}
	var unready []string
	for i := range g.Pod.Spec.InitContainers {
		if spec := &g.Pod.Spec.InitContainers[i]; pod.IsRestartableInit(spec) && !s.InitContainerStatuses[i].Ready {
			unready = append(unready, spec.Name)
		}
	}
	for i := range g.Pod.Spec.Containers {
		if name := g.Pod.Spec.Containers[i].Name; !pod.FindContainerStatus(s, name).Ready {
			unready = append(unready, name)
		}
	}
	if len(unready) > 0 {
		c.Reason, c.Message = reasonNotReady, fmt.Sprintf("containers with unready status: %s", unready)
		return c
	}
	c.Status = v1.ConditionTrue
	return c
}

// readinessGates sets ready to false unless the conditions of all gates are true.
func (g *generator) readinessGates(conditions []v1.PodCondition, ready *v1.PodCondition) {
	var closed []string
	for _, gate := range g.Pod.Spec.ReadinessGates {
		c := pod.FindCondition(conditions, gate.ConditionType)
		switch {
		case c == nil:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, c.Status))
		}
	}
	if len(closed) > 0 {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, reasonGatesNotReady, strings.Join(closed, ", ")
	}
}

// podInitialized returns the condition Initialized. Once true, it stays true when init
// containers run again.
func (g *generator) podInitialized(s *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if s.Phase == v1.PodSucceeded {
		c.Reason = reasonPodCompleted
		return c
	}
	for i := range s.ContainerStatuses {
		if s.ContainerStatuses[i].State.Waiting == nil {
			return c
		}
	}
	var incomplete []string
	for i := range g.Pod.Spec.InitContainers {
		spec, cs := &g.Pod.Spec.InitContainers[i], &s.InitContainerStatuses[i]
		done := cs.Ready
		if pod.IsRestartableInit(spec) {
			done = *cs.Started
		}
		if !done {
			incomplete = append(incomplete, spec.Name)
		}
	}
	was := pod.FindCondition(g.old.Conditions, v1.PodInitialized)
	if len(incomplete) > 0 && (was == nil || was.Status != v1.ConditionTrue) {
		c.Status, c.Reason = v1.ConditionFalse, reasonNotInitialized
		c.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return c
}
