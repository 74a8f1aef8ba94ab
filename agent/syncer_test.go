package agent

import (
	"testing"
)

// TestVolumesInMemoryAreBounded checks that the agent's volumes have the bound
// of the node's own memory.
func TestVolumesInMemoryAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.start()
		limit := l.agent.syncer.Volumes.MemoryLimit(shell(t, "free", "Always", "sleep infinity"))
		allocatable := l.agent.node.Allocatable()
		if all := allocatable.Memory().Value(); limit != all || limit <= 0 {
			t.Errorf("bound of a pod without limits: %d, want what the node can allocate, %d", limit, all)
		}
	})
}
