// Package adopt tests on a simulated board that tinylet takes over what a
// stock kubelet runs, and gives it back, without stopping anything:
//
//	go test -tags adopt -v ./test/adopt
//
// The stock kubelet is built from its published module, in the folder
// kubelet.
package adopt
