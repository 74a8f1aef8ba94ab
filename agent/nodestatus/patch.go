package nodestatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
)

// Keys of a strategic merge patch
// (k8s.io/apimachinery/pkg/util/strategicpatch/patch.go).
const (
	patchDirective = "$patch"
	orderDirective = "$setElementOrder/"
)

// Patch is the strategic merge patch for a node's subresource status that
// makes before into after: labels, annotations and the status. It is nil if
// nothing of these differs. It carries what differs and nothing else, so that
// what others wrote in between stays.
//
// It is written here, since k8s.io/apimachinery/pkg/util/strategicpatch knows
// the same of every type and links the OpenAPI machinery for it: 39 packages
// and 2.7 MB of the arm64 binary. Its patch of a heartbeat is also half as
// large again, as it repeats the order of the conditions. What it makes of
// these patches is tested in testdata/strategicpatch.
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
	old, err := document(before)
	if err != nil {
		return nil, err
	}
	fresh, err := document(after)
	if err != nil {
		return nil, err
	}
	patch := make(map[string]any)
	mergeConditions(patch, take(old, "conditions"), take(fresh, "conditions"))
	if was, is := take(old, "addresses"), take(fresh, "addresses"); !reflect.DeepEqual(was, is) {
		patch["addresses"] = replaced(is)
	}
	for key, value := range diff(old, fresh) {
		patch[key] = value
	}
	return patch, nil
}

// document is a status as JSON has it, numbers as they are written.
func document(s *v1.NodeStatus) (map[string]any, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var doc map[string]any
	err = dec.Decode(&doc)
	return doc, err
}

// take takes a list out of a document.
func take(doc map[string]any, key string) []any {
	list, _ := doc[key].([]any)
	delete(doc, key)
	return list
}

// replaced is a list that takes the place of one that would be merged.
func replaced(list []any) []any {
	return append(list, map[string]any{patchDirective: "replace"})
}

// diff is what makes one object into another: null for what goes, objects
// merged, lists replaced.
func diff(before, after map[string]any) map[string]any {
	patch := make(map[string]any)
	for key, is := range after {
		was, ok := before[key]
		old, bothObjects := was.(map[string]any)
		fresh, isObject := is.(map[string]any)
		switch {
		case !ok:
			patch[key] = is
		case bothObjects && isObject:
			if d := diff(old, fresh); len(d) > 0 {
				patch[key] = d
			}
		case !reflect.DeepEqual(was, is):
			patch[key] = is
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			patch[key] = nil
		}
	}
	return patch
}

// mergeConditions adds what makes one list of conditions into another.
func mergeConditions(patch map[string]any, before, after []any) {
	const key = "conditions"
	old, unique := byType(before)
	fresh, freshUnique := byType(after)
	if !unique || !freshUnique {
		// A type that stands twice cannot be told apart by it.
		if !reflect.DeepEqual(before, after) {
			patch[key] = replaced(after)
		}
		return
	}
	var list, order, stay []any
	for _, c := range before {
		kind := map[string]any{"type": typeOf(c)}
		if _, ok := fresh[typeOf(c)]; ok {
			stay = append(stay, kind)
			continue
		}
		kind[patchDirective] = "delete"
		list = append(list, kind)
	}
	for _, c := range after {
		kind := typeOf(c)
		order = append(order, map[string]any{"type": kind})
		was, ok := old[kind]
		if !ok {
			list = append(list, c)
			continue
		}
		if d := diff(was, fresh[kind]); len(d) > 0 {
			d["type"] = kind
			list = append(list, d)
		}
	}
	if len(list) > 0 {
		patch[key] = list
	}
	// Those that stay keep their order by themselves.
	if !reflect.DeepEqual(order, stay) {
		patch[orderDirective+key] = order
	}
}

// byType finds conditions by their type; unique is false if one stands twice.
func byType(list []any) (found map[string]map[string]any, unique bool) {
	found = make(map[string]map[string]any, len(list))
	for _, c := range list {
		found[typeOf(c)], _ = c.(map[string]any)
	}
	return found, len(found) == len(list)
}

func typeOf(condition any) string {
	object, _ := condition.(map[string]any)
	kind, _ := object["type"].(string)
	return kind
}
