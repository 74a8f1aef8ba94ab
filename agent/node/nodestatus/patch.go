package nodestatus

import (
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch"
)

// Patch is the strategic merge patch for a node's subresource status that
// makes before into after: labels, annotations and the status. It is nil if
// nothing of these differs. It carries what differs and nothing else, so that
// what others wrote in between stays.
//
// The patch that k8s.io/apimachinery/pkg/util/strategicpatch makes of a
// heartbeat is half as large again, as it repeats the order of the conditions.
// What it makes of these patches is tested in testdata/strategicpatch.
//
// The lists of a status are replaced, but for the conditions, which merge by
// their type. Addresses are declared to merge by their type too, which would
// let the second internal address overwrite the first; so they are replaced
// as a whole, as the kubelet does it
// (k8s.io/component-helpers/node/util/status.go). An API server then brings
// those of one type together.
//
// The error is that of encoding/json, which has none for a node that came
// from an API server or from this package.
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
		return nil, fmt.Errorf("patch the status of node %q: %w", after.Name, err)
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
		patch["addresses"] = strategicpatch.Replaced(is)
	}
	for key, value := range strategicpatch.Diff(old, fresh) {
		patch[key] = value
	}
	return patch, nil
}

// mergeConditions adds what makes one list of conditions into another.
func mergeConditions(patch map[string]any, before, after []any) {
	const key = "conditions"
	old, unique := strategicpatch.ByType(before)
	fresh, freshUnique := strategicpatch.ByType(after)
	if !unique || !freshUnique {
		// A type that stands twice cannot be told apart by it.
		if !reflect.DeepEqual(before, after) {
			patch[key] = strategicpatch.Replaced(after)
		}
		return
	}
	var list, order, stay []any
	for _, c := range before {
		kind := map[string]any{"type": strategicpatch.TypeOf(c)}
		if _, ok := fresh[strategicpatch.TypeOf(c)]; ok {
			stay = append(stay, kind)
			continue
		}
		kind[strategicpatch.Directive] = "delete"
		list = append(list, kind)
	}
	for _, c := range after {
		kind := strategicpatch.TypeOf(c)
		order = append(order, map[string]any{"type": kind})
		was, ok := old[kind]
		if !ok {
			list = append(list, c)
			continue
		}
		if d := strategicpatch.Diff(was, fresh[kind]); len(d) > 0 {
			d["type"] = kind
			list = append(list, d)
		}
	}
	if len(list) > 0 {
		patch[key] = list
	}
	// Those that stay keep their order by themselves.
	if !reflect.DeepEqual(order, stay) {
		patch[strategicpatch.Order+key] = order
	}
}
