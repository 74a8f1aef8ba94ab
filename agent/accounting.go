package agent

import (
	"os"
	"path/filepath"

	"github.com/tinylet/tinylet/cgroups"
)

// enforcePods is what enforceNodeAllocatable has for the pods.
const enforcePods = "pods"

// swapLimited is memorySwap.swapBehavior where pods may swap (KEP-2400).
const swapLimited = "LimitedSwap"

// accounting is what the kernel's cgroups can bound.
type accounting struct{ memory, hugePages, swap, io bool }

// accountingOf asks the hierarchy, which may be nil.
func accountingOf(tree *cgroups.Tree) accounting {
	has := func(controller string) bool {
		if tree == nil {
			return false
		}
		missing, err := tree.Missing(controller)
		return err == nil && len(missing) == 0
	}
	return accounting{memory: has("memory"), hugePages: has("hugetlb"), swap: ownHas("memory.swap.max"), io: has("io") && ownHas("io.weight")}
}

// ownHas says whether the agent's own group has a file, since the hierarchy's
// root has none that limits, as with a kubelet (IsSwapControllerAvailable in
// pkg/kubelet/util/swap).
func ownHas(file string) bool {
	path, ok := cgroups.Own()
	if !ok {
		return false
	}
	_, err := os.Stat(filepath.Join(cgroups.DefaultRoot, path, file))
	return err == nil
}
