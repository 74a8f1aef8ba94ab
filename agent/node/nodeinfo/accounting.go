package nodeinfo

import (
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/cgroups"
)

// enforcePods is the value of enforceNodeAllocatable for the pods.
const enforcePods = "pods"

// swapLimited is the value of memorySwap.swapBehavior with which pods may swap (KEP-2400).
const swapLimited = "LimitedSwap"

// accounting is the set of resources that the kernel's cgroup controllers can limit.
type accounting struct{ memory, hugePages, swap, io bool }

// accountingOf reads the controllers of a hierarchy, which may be nil.
func accountingOf(tree *cgroups.Tree) accounting {
	has := func(controller string) bool {
		if tree == nil {
			return false
		}
		missing, err := tree.Missing(controller)
		return err == nil && len(missing) == 0
	}
	return accounting{memory: has("memory"), hugePages: has("hugetlb"), swap: ownCgroupHas("memory.swap.max"), io: has("io") && ownCgroupHas("io.weight")}
}

// ownCgroupHas reports whether the agent's own cgroup has a file. The root cgroup has no
// file of a limit (IsSwapControllerAvailable in pkg/kubelet/util/swap does the same).
func ownCgroupHas(file string) bool {
	path, ok := cgroups.Own()
	if !ok {
		return false
	}
	_, err := os.Stat(filepath.Join(cgroups.DefaultRoot, path, file))
	return err == nil
}
