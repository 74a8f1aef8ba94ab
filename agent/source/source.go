// Package source implements the agent's pod config sources. It reads static
// pods from a directory or file (File) and from a URL (HTTP), lists and watches
// the pods that the API server assigns to the node (API), and merges the full
// sets of all sources into one ordered stream of updates (Mux).
//
// A source that cannot be read never yields fewer pods than before: the pods of a manifest
// stay when the manifest becomes invalid, and the error is reported once.
package source

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source/manifest"
)

// Op is the kind of change that an Update carries.
type Op string

// The operations, as the kubelet has them (pkg/kubelet/types/pod_update.go).
const (
	// ADD adds pods that the source did not have.
	ADD Op = "ADD"
	// UPDATE carries pods whose spec, labels or annotations changed, or whose
	// source changed.
	UPDATE Op = "UPDATE"
	// REMOVE removes pods that no source desires, or whose name changed. The
	// update carries their last known state.
	REMOVE Op = "REMOVE"
	// RECONCILE carries pods of which only the status changed, and restored pods
	// that the API server has unchanged.
	RECONCILE Op = "RECONCILE"
	// DELETE carries known pods that are to be deleted gracefully.
	DELETE Op = "DELETE"
	// RESTORE carries pods from the journal, before their source is ready.
	RESTORE Op = "RESTORE"
)

// Update is one change of the desired pods. Its pods are shared and must not be
// modified. An ADD without pods marks the source as ready when it has nothing
// to add.
type Update struct {
	Op     Op
	Source string
	Pods   []*v1.Pod
	// Partial reports whether the source's set is partial.
	Partial bool
}

// PodSet is the full desired set of pods of a source.
type PodSet struct {
	// Pods must not be modified after they are handed over.
	Pods []*v1.Pod
	// Replaces names a source whose pods this set replaces: that source
	// desires nothing from now on. "" means none.
	Replaces string
	// Partial reports that some part of the source has not been read since the
	// start. It is unknown which running pods come from that part, so no
	// running pod may be treated as orphaned yet.
	Partial bool
}

// Reasons of the events of this package.
const (
	// ReasonInvalidManifest is for a document that cannot be decoded or is not
	// a valid pod.
	ReasonInvalidManifest = "InvalidManifest"
	// ReasonUnknownField is for a pod that runs although its manifest has unknown
	// or duplicate fields.
	ReasonUnknownField = "UnknownField"
	// ReasonUnreadableManifest is for a file, directory or URL that cannot be
	// read.
	ReasonUnreadableManifest = "UnreadableManifest"
	// ReasonDuplicatePod is for a pod whose name or UID another pod has.
	ReasonDuplicatePod = "DuplicatePod"
)

// maxReported bounds the problems of one manifest, and the rejected pods of one
// list, that get their own event.
const maxReported = 20

// reportProblems emits one event for each of the first maxReported problems of a manifest, and
// one event with the number of the others.
func reportProblems(events *event.Recorder, location string, problems []manifest.Problem) {
	for i, problem := range problems {
		if i == maxReported {
			events.Warning(pod.Ref{}, ReasonInvalidManifest, fmt.Sprintf("%s: %d more problems", location, len(problems)-i))
			return
		}
		reason := ReasonInvalidManifest
		if problem.Warning {
			reason = ReasonUnknownField
		}
		place := location
		if problem.Place != "" {
			place += ", " + problem.Place
		}
		events.Warning(problem.Pod, reason, fmt.Sprintf("%s: %v", place, problem.Err))
	}
}

// merge returns the desired pods of a location after its text was parsed. If a
// document is invalid, merge keeps the previous pods that no valid document replaces: a
// faulty edit must not terminate a pod.
func merge(before []*v1.Pod, m manifest.Manifest) []*v1.Pod {
	if m.Complete() {
		return m.Pods
	}
	after := slices.Clone(m.Pods)
	for _, old := range before {
		if !slices.ContainsFunc(m.Pods, func(p *v1.Pod) bool {
			return p.UID == old.UID || pod.RefOf(p).FullName() == pod.RefOf(old).FullName()
		}) {
			after = append(after, old)
		}
	}
	return after
}
