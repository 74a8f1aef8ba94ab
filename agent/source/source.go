// Package source brings pods to the agent: it reads static pods from a
// folder or file (File) and from a URL (HTTP), follows the pods that the API
// server gives the node (API), and merges the full sets that the sources hand
// over into one ordered stream of changes (Mux).
//
// A source that cannot be read never gives fewer pods than before: a bad
// manifest leaves the pods that it gave running, and says so once.
package source

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source/manifest"
)

// Op is what happened to the pods of an Update.
type Op uint8

// The operations, as the kubelet has them (pkg/kubelet/types/pod_update.go).
const (
	// ADD brings pods that this source did not have.
	ADD Op = iota + 1
	// UPDATE brings pods whose spec or metadata changed.
	UPDATE
	// REMOVE takes pods that no source has any more; they are as they were
	// last.
	REMOVE
	// RECONCILE brings pods of which only the status differs from before.
	RECONCILE
	// DELETE brings pods that are to be deleted gracefully.
	DELETE
	// RESTORE brings pods from the journal, before their source is there.
	RESTORE
)

// String is the operation's name.
func (op Op) String() string {
	switch op {
	case ADD:
		return "ADD"
	case UPDATE:
		return "UPDATE"
	case REMOVE:
		return "REMOVE"
	case RECONCILE:
		return "RECONCILE"
	case DELETE:
		return "DELETE"
	case RESTORE:
		return "RESTORE"
	default:
		return fmt.Sprintf("Op(%d)", uint8(op))
	}
}

// Update is one change of the wanted pods. Pods are shared: nobody changes
// them. An ADD without pods says that the source is there and wants nothing
// more.
type Update struct {
	Op     Op
	Source string
	Pods   []*v1.Pod
	// Partial is that of the source's set.
	Partial bool
}

// Wanted is the full set of pods that a source wants.
type Wanted struct {
	// Pods are shared from the moment they are handed over.
	Pods []*v1.Pod
	// InsteadOf is a source whose pods this set takes the place of: from now
	// on it wants nothing. "" is none.
	InsteadOf string
	// Partial says that a part of the source was never read since the start,
	// so that what runs from it is not known: nothing may be taken for
	// unwanted yet.
	Partial bool
}

// Reasons of the events of this package.
const (
	// ReasonInvalidManifest is for a document that cannot be decoded or is
	// no pod.
	ReasonInvalidManifest = "InvalidManifest"
	// ReasonUnknownField is for a pod that runs without a part of what its
	// manifest says.
	ReasonUnknownField = "UnknownField"
	// ReasonUnreadableManifest is for a file, folder or URL that cannot be
	// read.
	ReasonUnreadableManifest = "UnreadableManifest"
	// ReasonDuplicatePod is for a pod whose name or UID another has.
	ReasonDuplicatePod = "DuplicatePod"
)

// maxMessage is the longest event in bytes, as in the events API.
const maxMessage = 1024

// clip cuts a message that quotes hostile input.
func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	cut := maxMessage - len("...")
	for cut > 0 && !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "..."
}

// maxReported is how many problems of one manifest have their own event.
const maxReported = 20

// report tells of a manifest's problems, each by one event. The recorder
// writes each to the log.
func report(events *event.Recorder, location string, problems []manifest.Problem) {
	for i, problem := range problems {
		if i == maxReported {
			events.Warning(pod.Ref{}, ReasonInvalidManifest, clip(fmt.Sprintf("%s: %d problems more", location, len(problems)-i)))
			return
		}
		reason := ReasonInvalidManifest
		if problem.Warning {
			reason = ReasonUnknownField
		}
		if problem.Place != "" {
			events.Warning(problem.Pod, reason, clip(fmt.Sprintf("%s, %s: %v", location, problem.Place, problem.Err)))
		} else {
			events.Warning(problem.Pod, reason, clip(fmt.Sprintf("%s: %v", location, problem.Err)))
		}
	}
}

// merge is what a location wants after its text was parsed. Where a document
// was bad, the pods that the text gave before and that no good document
// replaces stay: an edit that went wrong must not end a pod.
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

// jittered is d and up to a tenth more, so that many boards do not act as
// one.
func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/10+1)
}
