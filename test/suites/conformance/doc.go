// Package conformance runs upstream's own end-to-end tests of nodes and volumes
// against a simulated board that is a node of a real control plane. What it
// runs, what it leaves out and what may fail is in selection.yaml and
// exceptions.yaml; what came of the recorded run is in
// docs/reference/conformance.md. The test that boots a board carries the build
// tag cluster; `make test-conformance` runs it.
package conformance
