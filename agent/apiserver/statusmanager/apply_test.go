package statusmanager_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// mergeKeys are the lists of a pod's status that merge, and by what.
var mergeKeys = map[string]string{"conditions": "type", "hostIPs": "ip", "podIPs": "ip"}

// apply applies a patch to a pod as an API server does (StrategicMergePatch in
// k8s.io/apimachinery/pkg/util/strategicpatch), limited to the rules that the
// patches of this package use. The module in testdata/strategicpatch compares it
// and Patch with upstream.
func apply(before *v1.Pod, patch []byte) (*v1.Pod, error) {
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
	change, _ := p["status"].(map[string]any)
	for list, key := range mergeKeys {
		if items, ok := change[list].([]any); ok {
			old, _ := status[list].([]any)
			change[list] = mergeBy(key, old, items)
		}
	}
	merge(doc, p)
	if data, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	var n v1.Pod
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

// merge is RFC 7396.
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

func mergeBy(key string, old, items []any) []any {
	at := func(list []any, item any) int {
		return slices.IndexFunc(list, func(other any) bool {
			return fmt.Sprint(other.(map[string]any)[key]) == fmt.Sprint(item.(map[string]any)[key])
		})
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
	return list
}
