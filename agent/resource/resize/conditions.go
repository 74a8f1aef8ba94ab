package resize

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions are what a pod's status says of resizes; nil is a condition that
// is not there. They are values: each method answers new ones and leaves the
// old as they are (pkg/kubelet/status/status_manager.go). A pod that has ended
// has none.
//
// The last transition is when the reason became another, not the message. The
// last probe, which the kubelet sets each time, stays empty: a status that
// says nothing new is not written. Times are cut to seconds, as the API has
// them.
type Conditions struct {
	Pending, InProgress *v1.PodCondition
}

// ConditionsOf are the conditions that a status already has: where the agent
// goes on after a restart. Their times stay, where the kubelet begins anew.
func ConditionsOf(list []v1.PodCondition) Conditions {
	var c Conditions
	for i := range list {
		if list[i].Type == v1.PodResizePending {
			c.Pending = new(list[i])
		}
		if list[i].Type == v1.PodResizeInProgress {
			c.InProgress = new(list[i])
		}
	}
	return c
}

// Continue are the conditions where was is what the API server has, learned
// after a look at what runs or a decision, each of which counts. A resize that
// is in progress is the one that the server has heard of, unless that had an
// error and this one has another.
func (c Conditions) Continue(was Conditions) Conditions {
	if c.Pending == nil {
		c.Pending = was.Pending
	}
	if c.InProgress == nil || c.InProgress.Reason == "" && was.InProgress != nil {
		c.InProgress = was.InProgress
	}
	return c
}

// List are the conditions for a status.
func (c Conditions) List() []v1.PodCondition {
	var list []v1.PodCondition
	for _, one := range []*v1.PodCondition{c.Pending, c.InProgress} {
		if one != nil {
			list = append(list, *one)
		}
	}
	return list
}

// PendingSince is when the pending resize got its outcome; zero without one.
func (c Conditions) PendingSince() time.Time {
	if c.Pending == nil {
		return time.Time{}
	}
	return c.Pending.LastTransitionTime.Time
}

// Decided are the conditions after a decision on the pod of that generation;
// of an allocation, after it is on record. An allocation begins a new resize,
// without the errors of the one before. Tell says that an event is due: the
// resize has started, or is put off or refused for the first time.
func (c Conditions) Decided(d Decision, generation int64, now time.Time) (after Conditions, tell bool) {
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

// Found are the conditions after a look at what runs: in progress unless it
// is settled. An error stays until the resize is over or another begins, and
// so does the generation. Done says that a resize was in progress and is over
// now, generation which one: an event is due.
func (c Conditions) Found(settled bool, generation int64, now time.Time) (after Conditions, of int64, done bool) {
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

// Failed are the conditions after a plan was refused or a step has failed. The
// kubelet keeps the generation of the resize that is in progress. Tell says
// that the error is a new one, or another than before: an event is due.
func (c Conditions) Failed(err error, generation int64, now time.Time) (after Conditions, of int64, tell bool) {
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
