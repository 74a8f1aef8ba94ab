// Package strategicpatch writes strategic merge patches: the difference of two JSON
// documents, the directives for lists, and conditions, which merge by their type.
// The caller knows which list merges how.
//
// The code is not upstream's, because k8s.io/apimachinery/pkg/util/strategicpatch
// supports every type and links the OpenAPI machinery for it: 39 packages and 2.7
// MB of the arm64 binary. The keys are those of its patch.go. The packages that
// write patches compare them with upstream in their testdata/strategicpatch.
package strategicpatch
