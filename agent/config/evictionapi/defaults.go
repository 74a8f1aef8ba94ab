package evictionapi

import "strconv"

const mi = 1 << 20

// The default threshold of memory is a sixteenth of the node's memory, but no
// less than the floor and no more than upstream's default; and never more than
// a quarter, for machines smaller than boards that run pods.
//
// Upstream's 100Mi is made for servers. On a board of 256 MB it is more than
// a third of what the kernel leaves, and since it is taken off allocatable as
// well, pods that would fit could not even come. A sixteenth is 100Mi from
// 1600 MiB of memory on, so that larger boards are as with upstream. The floor
// is what it takes to end a pod in an orderly way: the runtime starts
// processes for it, which must not become victims of the kernel themselves.
const (
	memoryPart     = 16
	memoryFloor    = 16 * mi
	memoryCeiling  = 100 * mi
	memoryPartMost = 4
)

// HardMemory is the default threshold of memory.available, in bytes and whole
// MiB, for a node with so many bytes of memory. Where these are not known it
// is upstream's.
func HardMemory(capacity int64) int64 {
	if capacity <= 0 {
		return memoryCeiling
	}
	bytes := min(max(capacity/memoryPart, memoryFloor), memoryCeiling, capacity/memoryPartMost)
	return max(bytes/mi*mi, mi)
}

// DefaultHard are the hard thresholds of a node with so many bytes of memory,
// as evictionHard has them. Those of file systems are upstream's
// (pkg/kubelet/eviction/defaults_linux.go), which has none for process IDs.
func DefaultHard(memory int64) map[string]string {
	return map[string]string{
		MemoryAvailable.String():   strconv.FormatInt(HardMemory(memory)/mi, 10) + "Mi",
		NodeFsAvailable.String():   "10%",
		NodeFsInodesFree.String():  "5%",
		ImageFsAvailable.String():  "15%",
		ImageFsInodesFree.String(): "5%",
	}
}
