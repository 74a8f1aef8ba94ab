package nodestatus_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// apply applies a patch to a node as an API server does (StrategicMergePatch in
// k8s.io/apimachinery/pkg/util/strategicpatch), for the few rules that patches of
// this package use. The module in testdata/strategicpatch compares it and Patch
// with the original.
func apply(before *v1.Node, patch []byte) (*v1.Node, error) {
	data, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	doc, err := object(data)
	if err != nil {
		return nil, err
	}
	p, err := object(patch)
	if err != nil {
		return nil, err
	}
	status, _ := doc["status"].(map[string]any)
	for _, list := range []string{"conditions", "addresses"} {
		change, _ := p["status"].(map[string]any)
		items, named := change[list].([]any)
		order, ordered := change["$setElementOrder/"+list].([]any)
		delete(change, "$setElementOrder/"+list)
		if named || ordered {
			old, _ := status[list].([]any)
			change[list] = mergeByType(old, items, order)
		}
	}
	merge(doc, p)
	if data, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	var n v1.Node
	err = json.Unmarshal(data, &n)
	return &n, err
}

func object(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var m map[string]any
	err := dec.Decode(&m)
	return m, err
}

// merge applies a merge patch (RFC 7396).
func merge(doc, patch map[string]any) {
	for key, value := range patch {
		into, isObject := doc[key].(map[string]any)
		from, both := value.(map[string]any)
		switch {
		case value == nil:
			delete(doc, key)
		case isObject && both:
			merge(into, from)
		default:
			doc[key] = value
		}
	}
}

func mergeByType(old, items, order []any) []any {
	kind := func(item any) string { return fmt.Sprint(item.(map[string]any)["type"]) }
	at := func(list []any, item any) int {
		return slices.IndexFunc(list, func(other any) bool { return kind(other) == kind(item) })
	}
	if i := slices.IndexFunc(items, func(item any) bool { return item.(map[string]any)["$patch"] == "replace" }); i >= 0 {
		return slices.Delete(items, i, i+1)
	}
	list := slices.Clone(old)
	for _, item := range items {
		switch i := at(list, item); {
		case item.(map[string]any)["$patch"] == "delete":
			list = slices.Delete(list, i, i+1)
		case i < 0:
			list = append(list, item)
		default:
			merge(list[i].(map[string]any), item.(map[string]any))
		}
	}
	if order != nil {
		slices.SortStableFunc(list, func(a, b any) int { return at(order, a) - at(order, b) })
	}
	return list
}
