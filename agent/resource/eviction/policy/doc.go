// Package policy decides which pod is ended when the node runs out of memory,
// disk or process IDs. It owns how long a threshold has been met, the order of the pods, what is told of an eviction,
// the limits that pods have on local storage, and which pods may come while
// the node is short. It is pure: figures and times are passed in, and nothing
// is read, kept on disk or started.
//
// The rules, words and numbers are those of the kubelet 1.36
// (pkg/kubelet/eviction). Where this differs:
//
//   - What upstream leaves to the order of a map has one order here: that of
//     thresholds, of node conditions, and of pods that rank the same.
//   - A condition that is met is true without a transition period, too.
//   - A static pod is held to the limits of its own manifest, unless its
//     priority is a system's (OverLimit). For pressure none is evicted.
//
// A turn of the caller is: Tracker.Step with what was observed; if thresholds
// are to be acted on, the Reclaims of the first; if Tracker.Reclaimed says that
// this was not enough, the first pod of Rank, ended as Describe says. One pod
// is evicted at a time, and the next figures are taken when it is gone.
// OverLimit stands for itself: it needs figures that cost more, and only of
// pods for which Limited holds.
package policy
