package evictionapi

import "strconv"

const mi = 1 << 20

// The default memory threshold is 1/16 of the node's memory, at least the floor and at
// most upstream's default. It is never more than 1/4, for machines too small to run
// pods.
//
// Upstream's 100Mi is meant for servers. On a board of 256 MB it is more than a
// third of the memory that the kernel leaves. It is also subtracted from
// allocatable, so pods that would fit would not be admitted. 1/16 reaches 100Mi at
// 1600 MiB of memory, so larger nodes have upstream's default. The floor is the
// memory that an orderly pod termination needs: the runtime starts processes for
// it, which the kernel must not OOM-kill.
const (
	memoryPart     = 16
	memoryFloor    = 16 * mi
	memoryCeiling  = 100 * mi
	memoryPartMost = 4
)

// DefaultHard returns the default evictionHard of a node with memory bytes of
// memory. If that is not known, 0 or less, the memory threshold is upstream's. The file
// system thresholds are upstream's (pkg/kubelet/eviction/defaults_linux.go), which has no
// default for process IDs.
func DefaultHard(memory int64) map[string]string {
	threshold := int64(memoryCeiling)
	if memory > 0 {
		threshold = min(max(memory/memoryPart, memoryFloor), memoryCeiling, memory/memoryPartMost)
	}
	return map[string]string{
		MemoryAvailable.String():   strconv.FormatInt(max(threshold/mi, 1), 10) + "Mi",
		NodeFsAvailable.String():   "10%",
		NodeFsInodesFree.String():  "5%",
		ImageFsAvailable.String():  "15%",
		ImageFsInodesFree.String(): "5%",
	}
}
