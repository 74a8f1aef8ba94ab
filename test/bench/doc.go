// Package bench measures what a node costs with the stock kubelet and with
// tinylet as its agent: the same simulated board, image, configuration and
// control plane, one agent after the other in one run. `make bench` runs it
// and writes RESULTS.md.
//
// What reads the board's answers and makes the table is plain code with tests
// of its own; what boots boards carries the build tag cluster.
package bench
