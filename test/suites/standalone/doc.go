// Package standalone tests tinylet on simulated boards: a real kernel, containerd,
// crun and CNI plugins, with the agent as the board's init scripts start it.
// The tests need the build tag board; BOARD_ARCH (arm64 or armv7) chooses the
// board, and bin/tinylet-$BOARD_ARCH is what is tested.
//
// TestPod plays scenes: pods that start together, and checks on them. Their
// containers run test/testpod. Each check prints a line of what was seen; one
// that fails adds what "tinylet describe" says of the pod.
package standalone
