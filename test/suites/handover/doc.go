// Package handover tests on a simulated board that tinylet takes over what a
// stock kubelet runs, and gives it back, without stopping anything:
//
//	go test -tags adopt -v ./test/suites/handover
//
// The stock kubelet is built from its published module, in the folder
// kubelet.
package handover
