// Package nodestatus_test holds agent/node/nodestatus.Patch against
// k8s.io/apimachinery's strategicpatch, which an API server applies patches
// with. It is a module of its own, since strategicpatch needs modules that
// tinylet has no use for:
//
//	cd agent/node/nodestatus/testdata/strategicpatch && go test .
//
// It shares the pairs of nodes with the package's own tests, and checks
// strategicpatchtest, which they use, too.
package nodestatus_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch/strategicpatchtest"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// serve applies a patch as an API server does (applyPatchToObject in
// k8s.io/apiserver/pkg/endpoints/handlers/patch.go).
func serve(before *v1.Node, patch []byte) (*v1.Node, error) {
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	var p map[string]any
	if err := kjson.Unmarshal(patch, &p); err != nil { // keeps whole numbers whole
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(doc, p, v1.Node{})
	if err != nil {
		return nil, err
	}
	var n v1.Node
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(merged, &n)
	return &n, err
}

func TestStrategicPatch(t *testing.T) {
	var ours, theirs int
	for seed := range int64(20000) {
		before, after := pair(seed)
		patch, err := nodestatus.Patch(before, after)
		if err != nil {
			t.Fatal(err)
		}
		if patch == nil {
			continue
		}
		got, err := serve(before, patch)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, patch, err)
		}
		reckoned, err := strategicpatchtest.Apply(before, types.StrategicMergePatchType, patch)
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range map[string]*v1.Node{"strategicpatch": got, "the tests' reckoning": reckoned} {
			if !equality.Semantic.DeepEqual(after.Status, n.Status) || !equality.Semantic.DeepEqual(after.Labels, n.Labels) ||
				!equality.Semantic.DeepEqual(after.Annotations, n.Annotations) {
				t.Fatalf("seed %d: %s by %s makes (-want +got):\n%s", seed, patch, name, cmp.Diff(after, n))
			}
		}
		ours += len(patch)
		theirs += len(kubelets(t, before, after))
	}
	t.Logf("all patches have %d bytes, %d %% of the kubelet's", ours, 100*ours/theirs)
}

// kubelets is the patch that a kubelet sends, without its care for addresses.
func kubelets(t *testing.T, before, after *v1.Node) []byte {
	t.Helper()
	from, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	to, err := json.Marshal(after)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, v1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}
