// Package cluster tests tinylet as a node of a real cluster: simulated boards
// that join the control plane of test/harness/controlplane, and run what it sends them.
// The tests carry the build tag cluster; `make test-cluster` runs them.
package cluster
