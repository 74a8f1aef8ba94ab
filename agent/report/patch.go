package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// patchDirective is a key of a strategic merge patch
// (k8s.io/apimachinery/pkg/util/strategicpatch/patch.go).
const patchDirective = "$patch"

// Patch is the strategic merge patch for the subresource status of the pod
// with that UID that makes before into after; nil if nothing differs. It
// carries what differs and the UID, with which the API server refuses it for
// another pod of the same name. Neither status is changed.
//
// Conditions merge by their type, and their order is not told, as they are a
// map. Addresses are replaced as a whole, as their order says which is the
// first; so are the lists of containers, since the API has no other way.
//
// It is written here for the reasons that agent/nodestatus has, and is held
// against strategicpatch in testdata/strategicpatch. The error is that of
// encoding/json, which has none for a status that came from an API server or
// from this agent.
func Patch(uid types.UID, before, after *v1.PodStatus) ([]byte, error) {
	from, to := *before, *after
	// What is the same need not become a document.
	drop(&from.Conditions, &to.Conditions)
	drop(&from.InitContainerStatuses, &to.InitContainerStatuses)
	drop(&from.ContainerStatuses, &to.ContainerStatuses)
	drop(&from.EphemeralContainerStatuses, &to.EphemeralContainerStatuses)
	drop(&from.ResourceClaimStatuses, &to.ResourceClaimStatuses)
	drop(&from.NodeAllocatableResourceClaimStatuses, &to.NodeAllocatableResourceClaimStatuses)
	if equality.Semantic.DeepEqual(&from, &to) {
		return nil, nil
	}
	old, err := document(&from)
	if err != nil {
		return nil, fmt.Errorf("patch the status of pod %s: %w", uid, err)
	}
	fresh, err := document(&to)
	if err != nil {
		return nil, fmt.Errorf("patch the status of pod %s: %w", uid, err)
	}
	status := diffStatus(old, fresh)
	if len(status) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

func drop[T any](a, b *[]T) {
	if equality.Semantic.DeepEqual(*a, *b) {
		*a, *b = nil, nil
	}
}

// document is a status as JSON has it, numbers as they are written. Times
// have whole seconds in it.
func document(s *v1.PodStatus) (map[string]any, error) {
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

func diffStatus(before, after map[string]any) map[string]any {
	patch := make(map[string]any)
	if list := diffConditions(take(before, "conditions"), take(after, "conditions")); len(list) > 0 {
		patch["conditions"] = list
	}
	for _, key := range []string{"hostIPs", "podIPs"} {
		if was, is := take(before, key), take(after, key); !reflect.DeepEqual(was, is) {
			patch[key] = replaced(is)
		}
	}
	for key, value := range diff(before, after) {
		patch[key] = value
	}
	return patch
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

// diffConditions is what makes one set of conditions into another.
func diffConditions(before, after []any) []any {
	old, unique := byType(before)
	fresh, freshUnique := byType(after)
	if !unique || !freshUnique {
		// A type that stands twice cannot be told apart by it.
		if reflect.DeepEqual(before, after) {
			return nil
		}
		return replaced(after)
	}
	var list []any
	for _, c := range before {
		if _, ok := fresh[typeOf(c)]; !ok {
			list = append(list, map[string]any{"type": typeOf(c), patchDirective: "delete"})
		}
	}
	for _, c := range after {
		kind := typeOf(c)
		was, ok := old[kind]
		d := diff(was, fresh[kind])
		if !ok {
			// A time that is not set is a null, which says nothing here.
			for key, value := range d {
				if value == nil {
					delete(d, key)
				}
			}
		}
		if len(d) > 0 {
			d["type"] = kind
			list = append(list, d)
		}
	}
	return list
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
