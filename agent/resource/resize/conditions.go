package resize

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Conditions are the resize conditions of a pod's status; nil means that the
// condition is absent. They are values: each method returns new ones and does not
// change its receiver (pkg/kubelet/status/status_manager.go). A terminated pod has
// none.
//
// LastTransitionTime changes with the reason, not with the message. LastProbeTime,
// which the kubelet sets each time, stays empty, so that an unchanged status is not
// written. Times are truncated to seconds, as in the API.
type Conditions struct {
	Pending, InProgress *v1.PodCondition
}

// ConditionsOf returns the conditions in a status, to continue after a restart of the
// agent. Their times stay; the kubelet sets new ones.
func ConditionsOf(list []v1.PodCondition) Conditions {
	return Conditions{
		Pending:    pod.FindCondition(list, v1.PodResizePending).DeepCopy(),
		InProgress: pod.FindCondition(list, v1.PodResizeInProgress).DeepCopy(),
	}
}

// Merge merges the conditions that the API server has, if these become known only
// after a check of the running containers or a decision. The new conditions take
// precedence, except that an InProgress condition without an error is replaced by the
// server's.
func (c Conditions) Merge(was Conditions) Conditions {
	if c.Pending == nil {
		c.Pending = was.Pending
	}
	if c.InProgress == nil || c.InProgress.Reason == "" && was.InProgress != nil {
		c.InProgress = was.InProgress
	}
	return c
}

// List returns the conditions for a status.
func (c Conditions) List() []v1.PodCondition {
	var list []v1.PodCondition
	for _, one := range []*v1.PodCondition{c.Pending, c.InProgress} {
		if one != nil {
			list = append(list, *one)
		}
	}
	return list
}

// PendingSince returns when the pending resize got its outcome, or zero if none is
// pending.
func (c Conditions) PendingSince() time.Time {
	if c.Pending == nil {
		return time.Time{}
	}
	return c.Pending.LastTransitionTime.Time
}

// AfterDecision returns the conditions after a decision on the pod of that generation.
// After an allocation, call it once the allocation is stored. An allocation starts a
// new resize, without the errors of the previous one. eventDue is true if the
// resize started, or if its outcome or its generation differs from the pending one's.
func (c Conditions) AfterDecision(d Decision, generation int64, now time.Time) (after Conditions, eventDue bool) {
	switch d.Outcome {
	case Unchanged:
		c.Pending = nil
		return c, false
	case Allocate:
		return Conditions{InProgress: condition(v1.PodResizeInProgress, nil, "", "", generation, now)}, true
	case Deferred, Infeasible:
		was := c.Pending
		c.Pending = condition(v1.PodResizePending, was, d.Outcome.String(), d.Message, generation, now)
		return c, was == nil || was.Reason != c.Pending.Reason || was.ObservedGeneration != generation
	}
	return c, false
}

// AfterCheck returns the conditions after a check of the running containers: InProgress
// unless the resize is settled. An error and the generation remain until the resize
// completes or another one starts. done reports whether a resize was in progress and is
// complete now: an event is due. of is the generation of the resize.
func (c Conditions) AfterCheck(settled bool, generation int64, now time.Time) (after Conditions, of int64, done bool) {
	was := c.InProgress
	switch {
	case settled && was == nil:
		return c, 0, false
	case settled:
		c.InProgress = nil
		return c, was.ObservedGeneration, true
	case was == nil:
		c.InProgress = condition(v1.PodResizeInProgress, nil, "", "", generation, now)
		return c, generation, false
	}
	return c, was.ObservedGeneration, false
}

// AfterError returns the conditions after a plan was rejected or a step failed. Like the
// kubelet, it keeps the generation of the resize in progress. eventDue is true
// if the error is new or has changed.
func (c Conditions) AfterError(err error, generation int64, now time.Time) (after Conditions, of int64, eventDue bool) {
	was := c.InProgress
	if was != nil {
		generation = was.ObservedGeneration
	}
	c.InProgress = condition(v1.PodResizeInProgress, was, v1.PodReasonError, err.Error(), generation, now)
	return c, generation, was == nil || was.Reason != c.InProgress.Reason || was.Message != c.InProgress.Message
}

func condition(t v1.PodConditionType, was *v1.PodCondition, reason, message string, generation int64, now time.Time) *v1.PodCondition {
	out := &v1.PodCondition{
		Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if was != nil && was.Reason == reason {
		out.LastTransitionTime = was.LastTransitionTime
	}
	return out
}
