package main

import (
	"os"
	"runtime/debug"
)

// heapPercent is how much the agent's heap may grow over what is alive before
// it is collected. Go's own 100 doubles 3 MB on a board where memory is what
// is scarce; half of that keeps 2 MB for the pods, and costs one more
// collection, about 40 ms on an emulated board, for each start of a pod.
const heapPercent = 50

// spareMemory has the heap stay small, unless the environment says (GOGC) how
// large it may get.
func spareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapPercent)
	}
}
