// Package critest runs critest, upstream's tests of container runtimes, against the
// driver native, which TestServe of that package serves as CRI on a simulated board.
// Images of BusyBox stand in for those of public registries. exceptions.yaml has the
// cases that need not pass. The test that boots a board carries the build tag board;
// `make test-critest` runs it.
package critest
