// Package strategicpatch owns the writing of strategic merge patches: what two
// JSON documents differ in, the directives that a patch of lists needs, and
// conditions, which merge by their type. Which list merges how is known to
// who patches.
//
// It is written here, since k8s.io/apimachinery/pkg/util/strategicpatch knows
// the same of every type and links the OpenAPI machinery for it: 39 packages
// and 2.7 MB of the arm64 binary. The keys are those of its patch.go. What it
// makes of the patches is tested in testdata/strategicpatch of the packages
// that write them.
package strategicpatch
