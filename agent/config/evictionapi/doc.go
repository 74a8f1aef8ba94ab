// Package evictionapi owns the eviction signals, their thresholds and what is
// observed of a signal, as pkg/kubelet/eviction/api of the kubelet 1.36 does,
// and parses thresholds of a KubeletConfiguration. It is pure. Where this differs
// from upstream:
//
//   - The default threshold of memory is a share of a small board's memory
//     (DefaultHard).
//   - A share that is not a number is refused, and so is a minimum reclaim of
//     more than the whole.
//   - The order of thresholds is that of signals, where upstream leaves it to the
//     order of a map.
package evictionapi
