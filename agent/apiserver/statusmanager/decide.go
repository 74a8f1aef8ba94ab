package statusmanager

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// view is the input of a decision about one name. Equal views lead to the same
// decision.
type view struct {
	api    *v1.Pod       // the pod in the API, nil if there is none
	static *v1.Pod       // the static pod of this name, nil if there is none
	ours   *v1.PodStatus // the status of the API's pod or, for a mirror pod, of the static pod
	// done means that the API's pod is being deleted and Config.Done is true for it.
	// staticGone is Config.StaticGone.
	done, staticGone bool
	nodeUID          types.UID
}

// verb is the kind of a request to the API server.
type verb uint8

const (
	nothing verb = iota
	patching
	removing
	creating
)

// action is the next request for a name.
type action struct {
	verb   verb
	patch  []byte
	urgent bool
	// after delays an urgent action, because another one is about to replace it.
	after time.Duration
	// refused is why a necessary action is not taken.
	refused error
}

// endingLimit bounds how long a status waits for the end of its pod, so that one patch
// reports both. Cleaning up a pod whose containers have terminated usually takes far less
// time.
const endingLimit = 250 * time.Millisecond

// ending reports whether the API's pod is being deleted and its containers have
// terminated, so that the agent is about to report its end.
func (v *view) ending() bool {
	if v.done || v.api.DeletionTimestamp == nil || v.ours == nil {
		return false
	}
	running := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	return !slices.ContainsFunc(v.ours.ContainerStatuses, running) && !slices.ContainsFunc(v.ours.InitContainerStatuses, running)
}

// decide returns the next action. It does not send a patch that equals
// unpersisted.
func (v *view) decide(unpersisted []byte, now time.Time) action {
	switch {
	case v.api == nil:
		return v.missing()
	case pod.IsMirror(v.api):
		return v.mirror(unpersisted, now)
	}
	return v.regular(unpersisted, now)
}

// missing decides about a name without a pod in the API.
func (v *view) missing() action {
	if v.static == nil {
		return action{}
	}
	if r := apiObjectReference(&v.static.Spec); r != "" {
		return action{refused: fmt.Errorf("mirror pod must not reference %s", r)}
	}
	if v.nodeUID == "" {
		return action{} // not registered yet
	}
	return action{verb: creating, urgent: true}
}

// mirror decides about a mirror pod (tryReconcileMirrorPods in pkg/kubelet/kubelet.go).
// It deletes an outdated one, and the next sync creates the current one.
func (v *view) mirror(unpersisted []byte, now time.Time) action {
	remove := action{verb: removing, urgent: true}
	if v.static == nil {
		if v.staticGone {
			return remove
		}
		return action{}
	}
	switch {
	case v.api.DeletionTimestamp != nil, !mirrors(v.api, v.static):
		return remove
	case v.ours == nil:
		return action{}
	case pod.IsTerminal(v.api.Status.Phase) && !pod.IsTerminal(v.ours.Phase):
		return remove
	}
	a, err := v.report(v.ours, unpersisted, now)
	if err != nil {
		return remove
	}
	return a
}

// regular decides about a pod that is not a mirror pod. Until the agent has a
// status of the pod, it does nothing.
func (v *view) regular(unpersisted []byte, now time.Time) action {
	var a action
	if v.ours != nil {
		var err error
		if a, err = v.report(v.ours, unpersisted, now); err != nil && !v.done {
			return action{refused: err}
		}
	}
	if a.verb == patching && v.ending() {
		a.after = endingLimit
	}
	if a.verb == nothing && v.done {
		// Even if the status can no longer be reported, the phase must become terminal.
		if !pod.IsTerminal(v.api.Status.Phase) {
			if a, _ = v.report(&v.api.Status, unpersisted, now); a.verb != nothing {
				return a
			}
		}
		return action{verb: removing, urgent: true}
	}
	return a
}

// report returns the patch from the API's status to the merged status. The error means
// that the merged status must not be sent.
func (v *view) report(ours *v1.PodStatus, unpersisted []byte, now time.Time) (action, error) {
	base := sorted(&v.api.Spec, v.api.Status)
	merged := merge(&base, ours, v.done, now)
	if base.Phase == v1.PodRunning && merged.Phase == v1.PodPending && !pod.HasRestartAllRule(&v.api.Spec) {
		merged.Phase = v1.PodRunning // the journal does not record that the pod ran
	}
	merged = sorted(&v.api.Spec, merged)
	if err := transition(&v.api.Spec, &base, &merged); err != nil {
		return action{}, err
	}
	patch, err := Patch(v.api.UID, &base, &merged)
	if err != nil {
		return action{}, err
	}
	if patch == nil || bytes.Equal(patch, unpersisted) {
		return action{}, nil
	}
	hurry := v.api.DeletionTimestamp != nil || urgent(&base, &merged)
	return action{verb: patching, patch: patch, urgent: hurry}, nil
}
