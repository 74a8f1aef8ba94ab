package statusmanager

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Reasons for the unreadiness of a terminated pod (pkg/kubelet/status/generate.go).
const (
	reasonCompleted = "PodCompleted"
	reasonFailed    = "PodFailed"
)

// merge returns the status that the API's pod should have: ours, combined with the
// parts of base that others own (mergePodStatus in
// pkg/kubelet/status/status_manager.go). ended means that nothing of the pod runs
// and that it is being deleted: its phase is then terminal, whatever phase the
// agent observed. Neither argument is changed; the result shares their memory.
func merge(base, ours *v1.PodStatus, ended bool, now time.Time) v1.PodStatus {
	s := *ours
	switch {
	case pod.IsTerminal(base.Phase) && s.Phase != base.Phase:
		s.Phase, s.Reason, s.Message = base.Phase, base.Reason, base.Message
	case ended && !pod.IsTerminal(s.Phase):
		s.Phase = v1.PodFailed
	}
	turning := pod.IsTerminal(s.Phase) && !pod.IsTerminal(base.Phase)
	s.Conditions = mergeConditions(base.Conditions, ours.Conditions, turning)
	if pod.IsTerminal(s.Phase) {
		unready(s.Conditions, base.Conditions, s.Phase, now)
	}
	if base.StartTime != nil && !base.StartTime.IsZero() {
		s.StartTime = base.StartTime
	}
	s.QOSClass = cmp.Or(base.QOSClass, s.QOSClass) // immutable in the API
	s.ObservedGeneration = max(s.ObservedGeneration, base.ObservedGeneration)
	s.InitContainerStatuses = atLeast(base.InitContainerStatuses, s.InitContainerStatuses)
	s.ContainerStatuses = atLeast(base.ContainerStatuses, s.ContainerStatuses)
	// Owned by the scheduler and other controllers.
	s.ResourceClaimStatuses = base.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = base.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = base.NodeAllocatableResourceClaimStatuses
	return s
}

// atLeast returns ours with no restart count below that of base. After a power cut,
// the disk may lack a container that started right before it, although its start
// was reported to the API server.
func atLeast(base, ours []v1.ContainerStatus) []v1.ContainerStatus {
	copied := false
	for i := range ours {
		name := ours[i].Name
		j := slices.IndexFunc(base, func(c v1.ContainerStatus) bool { return c.Name == name })
		if j < 0 || base[j].RestartCount <= ours[i].RestartCount {
			continue
		}
		if !copied {
			ours, copied = slices.Clone(ours), true
		}
		ours[i].RestartCount = base[j].RestartCount
	}
	return ours
}

// owned are the conditions that the node sets and removes (pkg/kubelet/types/pod_status.go).
var owned = []v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
	v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting,
}

// mergeConditions keeps the order of base and the conditions that others own. The
// condition DisruptionTarget is shared: the node sets it only when the pod becomes
// terminal, and only if no one else did.
func mergeConditions(base, ours []v1.PodCondition, turning bool) []v1.PodCondition {
	out := make([]v1.PodCondition, 0, len(base)+len(ours))
	for i := range base {
		was, is := &base[i], pod.FindCondition(ours, base[i].Type)
		switch {
		case slices.Contains(owned, was.Type):
			if is != nil && pod.FindCondition(out, was.Type) == nil {
				out = append(out, successor(was, is))
			}
		case disrupts(is) && turning && was.Status != v1.ConditionTrue:
			out = append(out, successor(was, is))
		default:
			out = append(out, *was)
		}
	}
	for i := range ours {
		is := &ours[i]
		if (slices.Contains(owned, is.Type) || disrupts(is) && turning) && pod.FindCondition(out, is.Type) == nil {
			out = append(out, *is)
		}
	}
	return out
}

func disrupts(c *v1.PodCondition) bool {
	return c != nil && c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
}

// successor returns the condition that replaces was. If the status is the same, the
// times stay.
func successor(was, is *v1.PodCondition) v1.PodCondition {
	c := *is
	c.ObservedGeneration = max(is.ObservedGeneration, was.ObservedGeneration)
	if was.Status == is.Status {
		if !was.LastTransitionTime.IsZero() {
			c.LastTransitionTime = was.LastTransitionTime
		}
		if is.LastProbeTime.IsZero() {
			c.LastProbeTime = was.LastProbeTime
		}
	}
	return c
}

// unready clears the readiness conditions of a terminated pod.
func unready(list, base []v1.PodCondition, phase v1.PodPhase, now time.Time) {
	for i := range list {
		c := &list[i]
		if c.Type != v1.PodReady && c.Type != v1.ContainersReady || c.Status != v1.ConditionTrue {
			continue
		}
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reasonCompleted, ""
		if phase == v1.PodFailed {
			c.Reason = reasonFailed
		}
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		if was := pod.FindCondition(base, c.Type); was != nil && was.Status == v1.ConditionFalse {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
}

// sorted returns a status with its containers in the order for comparing and
// sending: init containers as in the spec, others by name.
func sorted(spec *v1.PodSpec, s v1.PodStatus) v1.PodStatus {
	byName := func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }
	place := func(name string) int {
		return slices.IndexFunc(spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
	}
	s.ContainerStatuses = inOrder(s.ContainerStatuses, byName)
	s.EphemeralContainerStatuses = inOrder(s.EphemeralContainerStatuses, byName)
	s.InitContainerStatuses = inOrder(s.InitContainerStatuses, func(a, b v1.ContainerStatus) int {
		return cmp.Compare(place(a.Name), place(b.Name))
	})
	return s
}

// inOrder returns a sorted list. It does not change its argument, and copies it
// only if necessary.
func inOrder(list []v1.ContainerStatus, less func(a, b v1.ContainerStatus) int) []v1.ContainerStatus {
	if slices.IsSortedFunc(list, less) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, less)
	return list
}

// urgent reports whether phase or readiness differ.
func urgent(base, merged *v1.PodStatus) bool {
	if base.Phase != merged.Phase {
		return true
	}
	for _, t := range [...]v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		was, is := pod.FindCondition(base.Conditions, t), pod.FindCondition(merged.Conditions, t)
		if (was == nil) != (is == nil) || was != nil && was.Status != is.Status {
			return true
		}
	}
	return false
}
