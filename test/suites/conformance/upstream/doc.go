// Package upstream pins the modules that the conformance tests build: upstream's
// end-to-end tests, Ginkgo, which runs them, and the programs of their images.
package upstream

import (
	_ "k8s.io/kubernetes/test/e2e" // go test -c builds it
)
