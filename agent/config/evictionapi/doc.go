// Package evictionapi defines the eviction signals, their thresholds and their
// observations, as pkg/kubelet/eviction/api of the kubelet 1.36 does, and parses
// the thresholds of a KubeletConfiguration. Its functions have no side effects.
// Differences from upstream:
//
//   - The default memory threshold depends on the node's memory (DefaultHard).
//   - A percentage that is not a number is rejected. So is a minimum reclaim of
//     more than 100%.
//   - Thresholds are in the order of their signals. Upstream has the order of a
//     map.
package evictionapi
