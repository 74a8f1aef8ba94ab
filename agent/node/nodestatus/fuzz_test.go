package nodestatus_test

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// FuzzNode starts from an arbitrary Node. The updated node must encode, and a
// second update must not change it.
func FuzzNode(f *testing.F) {
	for seed := range int64(4) {
		node, _ := pair(seed)
		data, err := json.Marshal(node)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"status": {"capacity": {"hugepages-2Mi": "1", "example.com/a": "9E"}, "conditions": [{"type": "Ready"}, {"type": "Ready"}], "addresses": [{}], "images": [{}], "nodeInfo": {"swap": {}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var existing v1.Node
		if json.Unmarshal(data, &existing) != nil {
			return
		}
		in := board(t)
		initial, err := nodestatus.Initial(in)
		if err != nil {
			t.Fatal(err)
		}
		reconciled, _ := nodestatus.Reconcile(&existing, initial)
		if _, changed := nodestatus.Reconcile(reconciled, initial); changed {
			t.Error("a second time it is changed again")
		}
		updated, _, _ := nodestatus.Update(reconciled, in)
		for _, n := range []*v1.Node{reconciled, updated} {
			patch, err := nodestatus.Patch(&existing, n)
			if err != nil {
				t.Fatal(err)
			}
			if patch != nil && !json.Valid(patch) {
				t.Errorf("no JSON: %s", patch)
			}
		}
		if again, changed, _ := nodestatus.Update(updated, in); changed {
			patch, _ := nodestatus.Patch(updated, again)
			t.Errorf("a second time it is changed again: %s", patch)
		}
	})
}
