// Package upstream pins the module of critest, which is all tests and so cannot be
// imported: these are the packages that it runs.
package upstream

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
