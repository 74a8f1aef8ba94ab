// Package strategicpatchtest applies patches as an API server does, for tests. It
// owns the server's side of the patches that a node sends: strategic merge patches of
// nodes and pods, and merge patches. The modules in testdata/strategicpatch of the
// packages that write patches compare it with k8s.io/apimachinery. No binary links it.
package strategicpatchtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch"
)

// mergeKeys has the lists that a strategic merge patch merges, and the key of their
// items (the tag patchMergeKey in k8s.io/api). Other lists are replaced.
var mergeKeys = map[string]string{"conditions": "type", "addresses": "type", "hostIPs": "ip", "podIPs": "ip"}

// Apply returns a copy of an object, which is a pointer, with a patch applied.
func Apply[T any](before T, kind types.PatchType, patch []byte) (T, error) {
	after, _ := reflect.New(reflect.TypeOf(before).Elem()).Interface().(T)
	doc, err := strategicpatch.Document(before)
	if err != nil {
		return after, err
	}
	change, err := strategicpatch.Document(json.RawMessage(patch))
	if err != nil {
		return after, err
	}
	switch kind {
	case types.MergePatchType:
		merge(doc, change, nil)
	case types.StrategicMergePatchType:
		merge(doc, change, mergeKeys)
	default:
		return after, fmt.Errorf("patch of type %s", kind)
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return after, err
	}
	return after, json.Unmarshal(data, after)
}

// merge applies a merge patch (RFC 7396) to a document. The lists in keys merge by
// the key of their items.
func merge(doc, patch map[string]any, keys map[string]string) {
	for name, key := range keys {
		items, changed := patch[name].([]any)
		order := strategicpatch.Take(patch, strategicpatch.Order+name)
		if changed || order != nil {
			old, _ := doc[name].([]any)
			patch[name] = mergeList(old, items, order, key)
		}
	}
	for name, value := range patch {
		into, isObject := doc[name].(map[string]any)
		from, both := value.(map[string]any)
		switch {
		case value == nil:
			delete(doc, name)
		case isObject && both:
			merge(into, from, keys)
		default:
			doc[name] = value
		}
	}
}

// mergeList merges items into a list and sorts it in the given order; nil keeps the
// order.
func mergeList(list, items, order []any, key string) []any {
	index := func(list []any, item any) int {
		return slices.IndexFunc(list, func(other any) bool { return field(other, key) == field(item, key) })
	}
	for i, item := range items {
		if field(item, strategicpatch.Directive) == "replace" {
			return slices.Delete(items, i, i+1)
		}
	}
	list = slices.Clone(list)
	for _, item := range items {
		i := index(list, item)
		switch {
		case field(item, strategicpatch.Directive) == "delete":
			if i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
		case i < 0:
			list = append(list, item)
		default:
			into, _ := list[i].(map[string]any)
			change, _ := item.(map[string]any)
			merge(into, change, nil)
		}
	}
	if order != nil {
		slices.SortStableFunc(list, func(a, b any) int { return index(order, a) - index(order, b) })
	}
	return list
}

func field(item any, key string) string {
	object, _ := item.(map[string]any)
	return fmt.Sprint(object[key])
}
