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

// view is all that is known of one name, and what is decided by. Two views
// that are equal lead to the same.
type view struct {
	api    *v1.Pod       // what the API has, nil if nothing
	static *v1.Pod       // the static pod of this name, nil if there is none
	ours   *v1.PodStatus // of the API's pod or, if that is a mirror pod, of the static one
	// done says that nothing runs of the API's pod, staticGone that no static
	// pod of the name is left.
	done, staticGone bool
	nodeUID          types.UID
}

// verb is what is asked of the API server.
type verb uint8

const (
	nothing verb = iota
	patching
	removing
	creating
)

func (v verb) String() string {
	switch v {
	case nothing:
	case patching:
		return "patch"
	case removing:
		return "delete"
	case creating:
		return "create"
	}
	return "nothing"
}

// action is the next request for a name.
type action struct {
	verb   verb
	patch  []byte
	urgent bool
	// after is how long an urgent action waits all the same: another one is
	// about to take its place.
	after time.Duration
	// refused is why nothing is done although something should be.
	refused error
}

// endingLimit is far more than the agent needs to take down what is left of a
// pod whose containers have ended, and little to who waits for that news where
// it takes longer.
const endingLimit = 250 * time.Millisecond

// ending says that the API's pod is to be deleted and its containers have
// ended: the agent is about to say that it is over.
func (v *view) ending() bool {
	if v.done || v.api.DeletionTimestamp == nil || v.ours == nil {
		return false
	}
	running := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	return !slices.ContainsFunc(v.ours.ContainerStatuses, running) && !slices.ContainsFunc(v.ours.InitContainerStatuses, running)
}

// ended says that the API's pod waits only for its deletion.
func (v *view) ended() bool { return v.done && v.api.DeletionTimestamp != nil }

// decide is what to do next. A patch that equals residue is not sent.
func (v *view) decide(residue []byte, now time.Time) action {
	switch {
	case v.api == nil:
		return v.missing()
	case pod.IsMirror(v.api):
		return v.mirror(residue, now)
	}
	return v.regular(residue, now)
}

// missing decides of a name that the API does not have.
func (v *view) missing() action {
	if v.static == nil {
		return action{}
	}
	if r := reference(&v.static.Spec); r != "" {
		return action{refused: fmt.Errorf("a mirror pod may not refer to %s", r)}
	}
	if v.nodeUID == "" {
		return action{} // not registered yet
	}
	return action{verb: creating, urgent: true}
}

// mirror decides of a mirror pod (tryReconcileMirrorPods in
// pkg/kubelet/kubelet.go). One that is not right is deleted, and the next look
// finds it missing.
func (v *view) mirror(residue []byte, now time.Time) action {
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
	case terminal(v.api.Status.Phase) && !terminal(v.ours.Phase):
		return remove
	}
	a, err := v.report(v.ours, residue, now)
	if err != nil {
		return remove
	}
	return a
}

// regular decides of a pod that came from the API. One that the agent does
// not know is none of its business yet.
func (v *view) regular(residue []byte, now time.Time) action {
	var a action
	if v.ours != nil {
		var err error
		if a, err = v.report(v.ours, residue, now); err != nil && !v.ended() {
			return action{refused: err}
		}
	}
	if a.verb == patching && v.ending() {
		a.after = endingLimit
	}
	if a.verb == nothing && v.ended() {
		// Whatever cannot be told any more, the phase has to be that of an end.
		if !terminal(v.api.Status.Phase) {
			if a, _ = v.report(&v.api.Status, residue, now); a.verb != nothing {
				return a
			}
		}
		return action{verb: removing, urgent: true}
	}
	return a
}

// report is the patch that brings the status to the API's pod.
func (v *view) report(ours *v1.PodStatus, residue []byte, now time.Time) (action, error) {
	base := sorted(&v.api.Spec, v.api.Status)
	merged := merge(&base, ours, v.ended(), now)
	if base.Phase == v1.PodRunning && merged.Phase == v1.PodPending && !pod.MayRestartAll(&v.api.Spec) {
		merged.Phase = v1.PodRunning // the journal of a pod does not tell that it ran
	}
	merged = sorted(&v.api.Spec, merged)
	if err := transition(&v.api.Spec, &base, &merged); err != nil {
		return action{}, err
	}
	patch, err := Patch(v.api.UID, &base, &merged)
	if err != nil {
		return action{}, err
	}
	if patch == nil || bytes.Equal(patch, residue) {
		return action{}, nil
	}
	hurry := v.api.DeletionTimestamp != nil || urgent(&base, &merged)
	return action{verb: patching, patch: patch, urgent: hurry}, nil
}

// left is what remains of a status after the server has taken it, nil if
// nothing: what it does not know, or does not let the node change.
func (v *view) left(now time.Time) []byte {
	if v.ours == nil {
		return nil
	}
	a, err := v.report(v.ours, nil, now)
	if err != nil {
		return nil
	}
	return a.patch
}
