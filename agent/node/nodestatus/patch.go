package nodestatus

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch"
)

// Patch returns the strategic merge patch for the subresource status of a node that
// changes before into after: labels, annotations and status. It returns nil if none
// of these differ. It contains only the differences, so that concurrent writes of
// others stay.
//
// The patch that k8s.io/apimachinery/pkg/util/strategicpatch makes of a heartbeat
// is half as large again, because it repeats the order of the conditions. The test
// in testdata/strategicpatch applies these patches with it.
//
// The lists of a status are replaced, except for the conditions, which merge by
// type. Addresses are declared to merge by type too, which would let the second
// internal address overwrite the first. So they are replaced as a whole, as the
// kubelet does it (k8s.io/component-helpers/node/util/status.go). An API server
// then groups the addresses by type.
//
// The error is that of encoding/json, which does not fail for a node from an API
// server or from this package.
func Patch(before, after *v1.Node) ([]byte, error) {
	patch := make(map[string]any)
	meta := make(map[string]any)
	for _, m := range []struct {
		name          string
		before, after map[string]string
	}{{"labels", before.Labels, after.Labels}, {"annotations", before.Annotations, after.Annotations}} {
		if d := diffTexts(m.before, m.after); len(d) > 0 {
			meta[m.name] = d
		}
	}
	if len(meta) > 0 {
		patch["metadata"] = meta
	}
	status, err := diffStatus(&before.Status, &after.Status)
	if err != nil {
		return nil, fmt.Errorf("patch status of node %q: %w", after.Name, err)
	}
	if len(status) > 0 {
		patch["status"] = status
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(patch)
}

func diffTexts(before, after map[string]string) map[string]any {
	d := make(map[string]any)
	for key, value := range after {
		if had, ok := before[key]; !ok || had != value {
			d[key] = value
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			d[key] = nil
		}
	}
	return d
}

func diffStatus(before, after *v1.NodeStatus) (map[string]any, error) {
	old, err := strategicpatch.Document(before)
	if err != nil {
		return nil, err
	}
	fresh, err := strategicpatch.Document(after)
	if err != nil {
		return nil, err
	}
	patch := make(map[string]any)
	mergeConditions(patch, strategicpatch.Take(old, "conditions"), strategicpatch.Take(fresh, "conditions"))
	if was, is := strategicpatch.Take(old, "addresses"), strategicpatch.Take(fresh, "addresses"); !reflect.DeepEqual(was, is) {
		patch["addresses"] = strategicpatch.ReplaceList(is)
	}
	maps.Copy(patch, strategicpatch.Diff(old, fresh))
	return patch, nil
}

// mergeConditions adds to patch the difference between two lists of conditions.
func mergeConditions(patch map[string]any, before, after []any) {
	const key = "conditions"
	list, byType := strategicpatch.DiffConditions(before, after, true)
	if len(list) > 0 {
		patch[key] = list
	}
	if !byType {
		return
	}
	var order, stay []any
	for _, c := range after {
		order = append(order, map[string]any{"type": strategicpatch.TypeOf(c)})
	}
	fresh, _ := strategicpatch.ByType(after)
	for _, c := range before {
		if _, ok := fresh[strategicpatch.TypeOf(c)]; ok {
			stay = append(stay, map[string]any{"type": strategicpatch.TypeOf(c)})
		}
	}
	// The server keeps the order of existing conditions without an order directive.
	if !reflect.DeepEqual(order, stay) {
		patch[strategicpatch.Order+key] = order
	}
}
