// Package policy decides which pod is evicted when the node runs out of memory, disk
// or process IDs. It tracks how long a threshold has been met, ranks the pods, writes
// the message of an eviction, checks the pods' limits on local storage, and admits
// pods under node pressure. It is pure: stats and times are arguments, and it
// performs no I/O and starts no goroutine.
//
// The rules, messages and numbers are those of the kubelet 1.36
// (pkg/kubelet/eviction), with these differences:
//
//   - Where upstream depends on the order of a map, the order here is fixed: that of
//     thresholds, of node conditions, and of pods with equal rank.
//   - A condition whose threshold is met is true even if the transition period is 0.
//   - The limits of a static pod's own manifest apply to it, unless it has system
//     priority (OverLimit). No static pod is evicted for node pressure.
//
// A caller's iteration is: call Tracker.Step with the observations; if it returns
// thresholds to act on, perform the Reclaims of the first; if Tracker.ReclaimSufficed
// returns false, evict the first pod of Rank as Describe returns. Only one pod is
// evicted at a time; observe again when it is gone. OverLimit is independent of this.
// It needs more expensive stats, but only of pods for which HasLimit holds.
package policy
