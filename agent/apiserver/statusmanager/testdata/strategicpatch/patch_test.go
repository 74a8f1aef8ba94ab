// Package statusmanager_test compares agent/apiserver/statusmanager.Patch with the
// strategicpatch of k8s.io/apimachinery, with which an API server applies patches.
// It is a separate module, because strategicpatch needs modules that tinylet does
// not use:
//
//	cd agent/apiserver/statusmanager/testdata/strategicpatch && go test .
//
// It shares the pairs of statuses with the package's own tests, and checks
// strategicpatchtest, which they use, too.
package statusmanager_test

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

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch/strategicpatchtest"
)

// serve applies a patch as an API server does (applyPatchToObject in
// k8s.io/apiserver/pkg/endpoints/handlers/patch.go).
func serve(before *v1.Pod, patch []byte) (*v1.Pod, error) {
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	var p map[string]any
	if err := kjson.Unmarshal(patch, &p); err != nil { // keeps whole numbers whole
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(doc, p, v1.Pod{})
	if err != nil {
		return nil, err
	}
	var n v1.Pod
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(merged, &n)
	return &n, err
}

func TestStrategicPatch(t *testing.T) {
	var ours, theirs int
	for seed := range int64(5000) {
		before, after := pair(seed)
		patch, err := statusmanager.Patch("u", before, after)
		if err != nil {
			t.Fatal(err)
		}
		if patch == nil {
			continue
		}
		pod := &v1.Pod{Status: *before}
		pod.UID = "u"
		got, err := serve(pod, patch)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, patch, err)
		}
		reckoned, err := strategicpatchtest.Apply(pod, types.StrategicMergePatchType, patch)
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range map[string]*v1.Pod{"strategicpatch": got, "the tests' reckoning": reckoned} {
			if want, got := ordered(after), ordered(&n.Status); n.UID != "u" || !equality.Semantic.DeepEqual(want, got) {
				t.Fatalf("seed %d: %s by %s makes (-want +got):\n%s", seed, patch, name, cmp.Diff(want, got))
			}
		}
		ours += len(patch)
		theirs += len(kubelets(t, before, after))
	}
	t.Logf("all patches have %d bytes, %d %% of the kubelet's", ours, 100*ours/theirs)
}

// kubelets is the patch that a kubelet sends.
func kubelets(t *testing.T, before, after *v1.PodStatus) []byte {
	t.Helper()
	from, err := json.Marshal(v1.Pod{Status: *before})
	if err != nil {
		t.Fatal(err)
	}
	pod := v1.Pod{Status: *after}
	pod.UID = "u"
	to, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, v1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}
